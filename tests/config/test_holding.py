"""Bytes that matrices take, against what the native core says and what it packs."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from quire.config.dtypes import COMPUTE_DTYPES
from quire.config.facts import ModelFacts
from quire.config.holding import Holding
from quire.core.ggml_types import IN_PLANES, PACKED
from quire.ops.cpu.matrix import StoredRows, packed_form, runs_alike
from quire.ops.reference.gguf.planes import KINDS as PLANE_KINDS
from quire.spec.matrix import MatrixSpec, Part
from tests.config.examples import TINY

core = pytest.importorskip("quire.ops.cpu._core")

KINDS = (*COMPUTE_DTYPES, *PACKED)
NOTHING = torch.empty(0)


def matrix(rows: tuple[int, ...], columns: int, *, bias: bool = False) -> MatrixSpec:
    parts = tuple(Part(f"part{number}", "x", count) for number, count in enumerate(rows))
    return MatrixSpec(parts, columns, "rows", bias)


def stored(*kinds: str) -> ModelFacts:
    return ModelFacts("m", TINY.spec, "float32", {f"part{number}.weight": kind for number, kind in enumerate(kinds)})


def test_experts_stay_packed_on_gpus_where_kernels_multiply_by_them() -> None:
    stack, plain = replace(matrix((64, 64), 256), experts=4), matrix((64, 64), 256)
    holding = Holding("bfloat16", keep_packed=True, on_gpu=True)
    assert holding.matrix_bytes(stored("Q8_0", "Q8_0"), stack) == 2 * 64 * 256 // 32 * 34
    assert holding.matrix_bytes(stored("IQ1_S", "IQ1_S"), stack) == 2 * 64 * 256 * 2
    assert holding.matrix_bytes(stored("IQ1_S", "IQ1_S"), plain) < 2 * 64 * 256
    assert holding.matrix_bytes(stored("IQ3_S", "Q2_K"), plain) == 64 * (138 + 100)


def test_types_that_gpus_hold_packed_are_those_that_have_planes() -> None:
    assert set(PLANE_KINDS) == set(IN_PLANES)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_what_the_core_says(kind: str) -> None:
    """The core's own arithmetic, of the layout in which it holds the kind."""
    layout = StoredRows(kind, NOTHING, 0).layout
    for rows, columns in product((1, 15, 16, 17, 1000, 4096), (1, 31, 32, 33, 256, 4096)):
        asked = Holding("float32", keep_packed=True, cpu_core=True).matrix_bytes(stored(kind), matrix((rows,), columns))
        assert asked == core.matrix_bytes(layout, rows, columns), (rows, columns)


@pytest.mark.parametrize(
    ("first", "second"), list(product((*COMPUTE_DTYPES, "Q4_0", "Q4_K", "Q8_0", "Q6_K"), repeat=2))
)
def test_parts_that_are_held_alike_share_panels(first: str, second: str) -> None:
    """Rows that fill no panel show which parts the core makes one matrix of."""
    rows, columns, kinds = (24, 8, 9), 256, (first, second, second)
    parts = [StoredRows(kind, NOTHING, count) for kind, count in zip(kinds, rows, strict=True)]
    expected = sum(packed_form(run, columns).size for run in runs_alike(parts))
    holding = Holding("float32", keep_packed=True, cpu_core=True)
    assert holding.matrix_bytes(stored(*kinds), matrix(rows, columns)) == expected


def test_expanded_parts_are_one_matrix_of_float32_whatever_they_were() -> None:
    expanded = Holding("float32", cpu_core=True)
    size = expanded.matrix_bytes(stored("Q4_0", "Q6_K", "bfloat16"), matrix((24, 8, 9), 100))
    assert size == core.matrix_bytes(StoredRows("float32", NOTHING, 0).layout, 24 + 8 + 9, 100) == 48 * 128 * 4


def test_a_bias_is_in_the_dtype_of_activations() -> None:
    for holding, size in ((Holding("bfloat16"), 2), (Holding("float32"), 4)):
        plain, biased = (
            holding.matrix_bytes(stored("float16"), matrix((24,), 32, bias=bias)) for bias in (False, True)
        )
        assert (plain, biased - plain) == (24 * 32 * size, 24 * size)


def test_torch_holds_no_padding() -> None:
    kept = Holding("bfloat16", keep_packed=True)
    assert kept.matrix_bytes(stored("Q4_K", "float32"), matrix((3, 5), 256)) == 3 * 144 + 5 * 256 * 2
    assert Holding("bfloat16").matrix_bytes(stored("Q4_K", "float32"), matrix((3, 5), 256)) == 8 * 256 * 2
