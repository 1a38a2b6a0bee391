"""What the tuner tries and writes; no device is needed for either."""

import ast
import re
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.kernels.skinny_gemm_candidates import MOST_CANDIDATES, candidates, ways
from quire.bench.kernels.skinny_gemm_source import table_path, table_source
from quire.ops.triton.skinny_gemm_choices import Choice, choose
from quire.ops.triton.skinny_gemm_table import TABLES
from tests.ops.triton.cards import H200, OTHERS

SIZES = st.sampled_from([1024, 2048, 4096, 14336, 28672])


@given(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]), SIZES, SIZES)
def test_candidates_are_few_and_different(rows: int, out_size: int, in_size: int) -> None:
    found = candidates(H200, rows, out_size, in_size)
    assert 0 < len(found) <= MOST_CANDIDATES
    assert len(set(found)) == len(found)
    assert all(choice.cores == "tensor" for choice in found) or rows <= 8


@pytest.mark.parametrize("rows", [1, 8])
def test_what_ships_comes_first_and_once(rows: int) -> None:
    shipped = choose(H200, rows, 4096, 4096)
    found = ways(H200, rows, 4096, 4096, tune=True)
    assert found[0] == shipped
    assert found.count(found[0]) == 1
    assert ways(H200, rows, 4096, 4096, tune=False) == [shipped]


def tables_in(source: str) -> dict[str, dict[tuple[int, int], dict[int, object]]]:
    (tables,) = [ast.literal_eval(node.value) for node in ast.parse(source).body if isinstance(node, ast.AnnAssign)]
    return tables


BEST = Choice("cuda", 2, 512, 1, 2, 1)


def test_the_table_keeps_other_shapes_and_takes_what_was_tuned() -> None:
    source = table_source([(1, 4096, 4096, BEST), (2, 4096, 4096, None), (4, 96, 64, BEST)], H200.name, "torch 3")
    assert re.findall("Measured on: .*", source) == ["Measured on: NVIDIA H200, torch 3."]
    (table,) = tables_in(source).values()
    assert table[4096, 4096][1] == astuple(BEST)
    assert table[4096, 4096][2] is None
    assert table[96, 64] == {4: astuple(BEST)}
    known = TABLES[H200.name]
    assert {shape: table[shape] for shape in known if shape != (4096, 4096)} == {
        shape: entries for shape, entries in known.items() if shape != (4096, 4096)
    }


def test_another_card_gets_a_table_of_its_own() -> None:
    card = OTHERS[0].name
    source = table_source([(1, 4096, 4096, BEST)], card, "torch 3, triton 4")
    assert re.findall(r"Measured on: (.*?),", source) == [H200.name, card]
    assert f"Measured on: {card}, torch 3, triton 4.\n" in source
    assert tables_in(source) == {**TABLES, card: {(4096, 4096): {1: astuple(BEST)}}}


def test_nothing_tuned_leaves_the_file_as_it_is() -> None:
    as_it_is = table_path().read_text(encoding="utf-8")
    versions = re.search(r"Measured on: NVIDIA H200, (.*)\.\n", as_it_is)
    assert versions is not None
    assert table_source([], H200.name, versions[1]) == as_it_is
