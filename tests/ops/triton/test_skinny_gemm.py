"""Skinny GEMMs agree with torch's, however they are cut; what is not theirs goes to torch."""

from dataclasses import astuple
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from quire.ops.reference.linear import linear as reference
from tests.ops.triton.cards import H200, OTHERS
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.rarely import rarely

if TYPE_CHECKING:
    from quire.ops.triton.card import Card
    from quire.ops.triton.skinny_gemm_choices import Choice

pytestmark = needs_triton

WAYS = {
    "cuda": ("cuda", 8, 64, 1, 1, 1),
    "cuda, one output": ("cuda", 1, 64, 1, 1, 3),
    "cuda, split": ("cuda", 4, 16, 3, 1, 2),
    "tensor": ("tensor", 32, 32, 1, 2, 3),
    "tensor, split": ("tensor", 16, 16, 3, 1, 2),
}
"""Fields of choices: cores, block_out, block_in, splits, num_warps, num_stages."""
SHAPES = ((16, 64), (13, 50), (1, 16), (18, 33))
"""out × in: whole blocks, and blocks that are not."""


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def weights(out_size: int, in_size: int, dtype: torch.dtype) -> Tensor:
    """Such that matmuls with normal rows are of order 1."""
    return (random(out_size, in_size, dtype=torch.float32, seed=1) / in_size**0.5).to(dtype)


def linear_by(way: tuple[Any, ...], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from quire.ops.triton import skinny_gemm
    from quire.ops.triton.skinny_gemm_choices import Choice

    return skinny_gemm.linear_by(Choice(*way), x, weight, bias)


def assert_close(got: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCES[got.dtype]
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", rarely(map(pytest.param, SHAPES), every=2))
def test_every_way_gives_torchs_result(way: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    weight, bias = weights(*shape, dtype), random(shape[0], dtype=dtype, seed=2)
    for rows, added in ((1, None), (3, bias)) if "cuda" in way else ((5, None), (16, bias), (33, bias)):
        x = random(rows, shape[1], dtype=dtype, seed=rows)
        assert_close(linear_by(WAYS[way], x, weight, added), reference(x, weight, added))


@pytest.mark.parametrize("way", WAYS)
def test_rows_may_lie_apart(way: str) -> None:
    fused = random(2, 96, dtype=torch.float16)
    weight = weights(20, 128, torch.float16)[3:, 64:]
    x = fused[:, 32:]
    assert not x.is_contiguous()
    assert not weight.is_contiguous()
    assert_close(linear_by(WAYS[way], x, weight, None), reference(x, weight, None))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("leading", [(), (2, 1, 2)])
def test_leading_dimensions_stay(way: str, leading: tuple[int, ...]) -> None:
    x = random(*leading, 48, dtype=torch.bfloat16)
    weight, bias = weights(10, 48, torch.bfloat16), random(10, dtype=torch.bfloat16, seed=2)
    got = linear_by(WAYS[way], x, weight, bias)
    assert got.shape == (*leading, 10)
    assert_close(got, reference(x, weight, bias))


@pytest.mark.parametrize("way", WAYS)
def test_a_gemm_always_rounds_alike(way: str) -> None:
    x, weight = random(2, 64, dtype=torch.bfloat16), weights(16, 64, torch.bfloat16)
    first = linear_by(WAYS[way], x, weight, None)
    assert all(torch.equal(linear_by(WAYS[way], x, weight, None), first) for _ in range(2))


@pytest.mark.parametrize("way", WAYS)
def test_a_row_is_the_same_in_any_company(way: str) -> None:
    x, weight = random(8, 64, dtype=torch.float16), weights(8, 64, torch.float16)
    together = linear_by(WAYS[way], x, weight, None)
    alone = torch.cat([linear_by(WAYS[way], row, weight, None)[None] for row in x])
    assert torch.equal(alone, together)


def test_more_splits_than_blocks_leave_programs_without_work() -> None:
    x, weight = random(2, 32, dtype=torch.float32), weights(8, 32, torch.float32)
    for way in (("cuda", 2, 16, 5, 1, 2), ("tensor", 16, 16, 5, 1, 2)):
        assert_close(linear_by(way, x, weight, None), reference(x, weight, None))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 16, 20, 32])
def test_the_op_computes_few_rows_itself(dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.ops.triton import skinny_gemm

    x, weight, bias = random(rows, 64, dtype=dtype), weights(48, 64, dtype), random(48, dtype=dtype, seed=2)
    expected = reference(x, weight, bias)
    monkeypatch.setattr(skinny_gemm, "functional", None)
    assert_close(skinny_gemm.linear(x, weight, bias), expected)


NOT_OURS = {
    "many rows": (random(33, 64, dtype=torch.bfloat16), weights(48, 64, torch.bfloat16)),
    "no rows": (random(0, 64, dtype=torch.bfloat16), weights(48, 64, torch.bfloat16)),
    "no outputs": (random(2, 64, dtype=torch.bfloat16), random(0, 64, dtype=torch.bfloat16)),
    "32-bit numbers": (random(2, 64, dtype=torch.float32), weights(48, 64, torch.float32)),
    "unaligned rows": (random(2, 63, dtype=torch.bfloat16), weights(48, 63, torch.bfloat16)),
    "columns of x apart": (random(64, 2, dtype=torch.bfloat16).T, weights(48, 64, torch.bfloat16)),
    "columns of weights apart": (random(2, 64, dtype=torch.bfloat16), weights(64, 48, torch.bfloat16).T),
}


@pytest.mark.parametrize("case", NOT_OURS)
def test_what_is_not_ours_goes_to_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.ops.triton import skinny_gemm

    x, weight = NOT_OURS[case]
    monkeypatch.setattr(skinny_gemm, "linear_by", None)
    assert_close(skinny_gemm.linear(x, weight, None), reference(x, weight, None))


def assert_can_be_launched(card: "Card", choice: "Choice", rows: int, programs: int = 1) -> None:
    """Powers of two, tiles that tensor cores have, and shared memory for so many programs at a time."""
    from quire.ops.triton.skinny_gemm_choices import MOST_ROWS_ON_CUDA_CORES, padded_rows

    for size in (choice.block_out, choice.block_in, choice.num_warps):
        assert size & (size - 1) == 0
    assert choice.splits >= 1
    assert 1 <= choice.num_warps <= 32
    assert choice.num_stages >= 1
    loaded = choice.block_out
    if choice.cores == "tensor":
        assert choice.block_out >= 16
        assert choice.block_in >= 16
        loaded += padded_rows(rows)
    else:
        assert rows <= MOST_ROWS_ON_CUDA_CORES
        assert choice.block_in >= 8 * card.warp_size * choice.num_warps
        loaded += rows
    assert programs * loaded * choice.block_in * 2 * choice.num_stages <= card.shared_memory


def test_an_h200_computes_as_its_table_says() -> None:
    from quire.ops.triton.skinny_gemm_choices import MOST_ROWS, choose
    from quire.ops.triton.skinny_gemm_table import TABLES

    for (out_size, in_size), by_rows in TABLES[H200.name].items():
        assert max(by_rows) == MOST_ROWS
        for rows in range(1, MOST_ROWS + 1):
            entry = by_rows[min(bound for bound in by_rows if bound >= rows)]
            choice = choose(H200, rows, out_size, in_size)
            assert (None if choice is None else astuple(choice)) == entry
            if choice is not None:
                assert_can_be_launched(H200, choice, rows)


FORMULA = {
    (1, 5120, 5120): ("cuda", 4, 1024, 1, 4, 1),
    (4, 1000, 256): ("cuda", 1, 256, 1, 1, 1),
    (8, 18944, 3584): ("tensor", 64, 128, 1, 4, 4),
    (16, 2560, 2048): ("tensor", 32, 256, 4, 2, 4),
    (8, 576, 1536): ("tensor", 16, 256, 3, 1, 4),
    (32, 18944, 3584): ("tensor", 128, 64, 1, 4, 5),
    (20, 2560, 2048): ("tensor", 64, 128, 3, 4, 4),
}
"""Rows, outputs and inputs that the table does not have: fields of choices, checked when they were made."""


@pytest.mark.parametrize("given", FORMULA, ids=str)
def test_an_h200_computes_other_shapes_as_ever(given: tuple[int, int, int]) -> None:
    from quire.ops.triton.skinny_gemm_choices import choose

    choice = choose(H200, *given)
    assert choice is not None
    assert astuple(choice) == FORMULA[given]


@pytest.mark.parametrize("card", [H200, *OTHERS], ids=lambda card: card.name)
def test_choices_by_formula_can_be_launched(card: "Card") -> None:
    from quire.ops.triton.skinny_gemm_choices import MOST_ROWS_BY_FORMULA, PROGRAMS, choose, padded_rows

    sizes = (16, 32, 48, 160, 256, 576, 1536, 2560, 5120, 11008, 18944, 65536)
    for rows, out_size, in_size in product((1, 4, 5, 16, 17, MOST_ROWS_BY_FORMULA), (1, 7, *sizes, 262144), sizes):
        choice = choose(card, rows, out_size, in_size)
        assert choice is not None
        assert_can_be_launched(card, choice, rows, PROGRAMS if choice.cores == "tensor" else 1)
        assert choice.cores == "cuda" or padded_rows(rows) >= rows
        # no split is without inputs by the formula
        assert (choice.splits - 1) * choice.block_in < in_size


@pytest.mark.parametrize("card", OTHERS, ids=lambda card: card.name)
def test_other_cards_do_not_go_by_the_table_of_an_h200(card: "Card") -> None:
    from quire.ops.triton.skinny_gemm_choices import choose

    assert choose(card, 128, 1024, 2048) is None, "by formula, many rows are for cuBLAS"
    wide = choose(card, 1, 4096, 4096)
    assert wide is not None
    assert wide != choose(H200, 1, 4096, 4096)
    long_enough = choose(card, 16, 262144, 4096)
    assert long_enough is not None
    assert long_enough.num_stages >= 2, "loads overlap"


@pytest.mark.parametrize("card", [H200, *OTHERS], ids=lambda card: card.name)
def test_every_multiprocessor_has_programs(card: "Card") -> None:
    from quire.ops.triton.skinny_gemm_choices import PROGRAMS, choose

    for rows in (1, 16):
        choice = choose(card, rows, 2560, 8192)
        assert choice is not None
        programs = -(-2560 // choice.block_out) * choice.splits
        assert programs >= PROGRAMS * card.multiprocessors


def test_rows_outside_the_table_are_not_chosen_for() -> None:
    from quire.ops.triton.skinny_gemm_choices import choose

    assert choose(H200, 0, 4096, 4096) is None
    assert choose(H200, 129, 4096, 4096) is None
