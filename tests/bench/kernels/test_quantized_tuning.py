"""What is measured of quantized GEMMs, tried and written; no device is needed for any of it."""

import ast
from dataclasses import astuple

import pytest
import torch

from quire.bench.kernels.quantized_candidates import CUDA_ROWS, candidates, ways
from quire.bench.kernels.quantized_cases import FORMS, copies_of, random_matrix
from quire.bench.kernels.quantized_gemm import ROWS, Outcome
from quire.bench.kernels.quantized_tuner import table_source
from quire.ops.reference.expand_matrix import expand_matrix
from quire.ops.triton.quantized_skinny_choices import choose, form_of
from quire.ops.triton.skinny_gemm_choices import Choice
from tests.ops.triton.cards import H200, OTHERS

CPU = torch.device("cpu")
SHAPES = ((4096, 4096), (4096, 14336), (128256, 4096))


@pytest.mark.parametrize("name", FORMS)
def test_random_codes_stand_for_weights_as_models_have_them(name: str) -> None:
    values = expand_matrix(random_matrix(name, 32, 512, CPU), torch.float32)
    assert values.shape == (32, 512)
    assert float(values.std()) == pytest.approx(0.02, rel=0.1)
    assert abs(float(values.mean())) < 4e-3


def test_copies_have_memory_of_their_own() -> None:
    matrix = random_matrix("q6_k", 8, 256, CPU)
    copies = copies_of(matrix, 3 * matrix.values.nbytes)
    assert len({each.values.data_ptr() for each in copies}) == len(copies) == 3
    assert all(torch.equal(each.values, matrix.values) for each in copies)


@pytest.mark.parametrize("name", FORMS)
def test_candidates_are_different_and_whole_chunks(name: str) -> None:
    form = form_of(random_matrix(name, 8, 256, CPU), in_8_bits=False)
    for rows in ROWS:
        for shape in SHAPES:
            found = candidates(H200, form, rows, *shape)
            assert 0 < len(found) <= 24
            assert len(set(found)) == len(found)
            assert all(choice.block_in % form.chunk == 0 for choice in found)
            assert all(choice.cores == "tensor" or rows <= CUDA_ROWS for choice in found)
            shipped = choose(H200, form, rows, *shape)
            assert shipped is None or ways(H200, form, rows, *shape, tune=True)[0] == shipped


BEST = Choice("cuda", 2, 512, 1, 2, 1)


def test_the_table_takes_what_was_tuned_and_keeps_other_cards() -> None:
    form = form_of(random_matrix("q4_k", 8, 256, CPU), in_8_bits=False)
    outcomes = [
        Outcome(form, 1, 4096, 4096, BEST, (1.0,), (2.0,)),
        Outcome(form, 2, 4096, 4096, BEST, (3.0,), (2.0,)),
        Outcome(form, 4, 4096, 4096, None, None, (2.0,)),
    ]
    source = table_source(outcomes, OTHERS[0].name, "torch 3, triton 4")
    assert f"Last measured on: {OTHERS[0].name}, torch 3, triton 4." in source
    (tables,) = [ast.literal_eval(node.value) for node in ast.parse(source).body if isinstance(node, ast.AnnAssign)]
    assert tables[OTHERS[0].name] == {"int4 32": {(4096, 4096): {1: astuple(BEST), 2: None, 4: None}}}
