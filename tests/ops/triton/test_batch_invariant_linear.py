"""A row's product is right, and the same bits in whatever company it is computed."""

import pytest
import torch

from quire.ops.reference.linear import linear as reference
from tests.ops.triton.device import DEVICE, TOLERANCES, needs_triton

pytestmark = needs_triton

SHAPES = [(96, 64), (130, 48), (64, 100)]
"""Outputs and inputs, with rests of blocks."""


def operands(rows: int, out_size: int, in_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(rows)
    sizes = ((rows, in_size), (out_size, in_size), (out_size,))
    x, weight, bias = (torch.randn(size, generator=random) for size in sizes)
    return x.to(DEVICE, dtype), (weight / in_size**0.5).to(DEVICE, dtype), bias.to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_reference(shape: tuple[int, int], dtype: torch.dtype) -> None:
    from quire.ops.triton.batch_invariant_linear import batch_invariant_linear

    x, weight, bias = operands(5, *shape, dtype)
    torch.testing.assert_close(
        batch_invariant_linear(x, weight, None), reference(x, weight, None), rtol=0, atol=TOLERANCES[dtype]
    )
    with_bias = batch_invariant_linear(x.view(1, 5, -1), weight, bias)
    torch.testing.assert_close(with_bias, reference(x, weight, bias)[None], rtol=1e-2, atol=TOLERANCES[dtype])


@pytest.mark.parametrize("shape", [*SHAPES, pytest.param((1024, 3072), marks=pytest.mark.gpu)], ids=str)
def test_a_row_alone_and_among_others(shape: tuple[int, int]) -> None:
    from quire.ops.triton.batch_invariant_linear import batch_invariant_linear, never_split_inputs

    if DEVICE.type == "cuda":
        never_split_inputs()
    x, weight, _ = operands(300, *shape, torch.float16)
    if DEVICE.type == "cpu":  # the interpreter multiplies with NumPy, whose sums depend on how many rows come
        x, weight = x.round(), (weight * 8).round() / 8  # so that every sum is exact
    expected = batch_invariant_linear(x, weight, None)
    for begin, end in ((0, 1), (7, 9), (100, 120), (3, 103), (0, 129), (10, 300)):
        assert torch.equal(batch_invariant_linear(x[begin:end], weight, None), expected[begin:end])
