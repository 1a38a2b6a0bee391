"""The token with the largest logit from the kernels and from torch: the same, and the same rows without any."""

import pytest
import torch

from quire.ops.adjustments import Adjusted
from quire.ops.reference.argmax import argmax as reference
from tests.ops.triton.device import DEVICE, DTYPES, needs_triton

pytestmark = needs_triton


def check(logits: torch.Tensor) -> None:
    from quire.ops.triton.argmax import argmax

    for found, wanted in zip(argmax(logits), reference(logits), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7000), (3, 1024), (2, 1025), (37, 300), (0, 50)])
def test_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    check(torch.randn(shape, device=DEVICE).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_of_equal_tokens_in_one_part_and_in_several(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    logits = torch.randint(-9, 9, (20, 5000), device=DEVICE).to(dtype)
    check(logits)
    logits[:] = -3.0
    logits[7, [1023, 1024, 4100]] = 2.0
    logits[8, [900, 200]] = 2.0
    check(logits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.nan])
def test_rows_that_have_none(wrong: float, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    logits = torch.randn(6, 2500, device=DEVICE).to(dtype)
    logits[1, 2499] = wrong
    logits[2, 0] = wrong
    logits[3] = -torch.inf
    logits[4, :2400] = -torch.inf
    check(logits)


def test_a_large_vocabulary() -> None:
    torch.manual_seed(4)
    check(torch.randn(1, 262_144, device=DEVICE))


def test_rows_of_a_wider_tensor() -> None:
    torch.manual_seed(5)
    check(torch.randn(4, 3000, device=DEVICE)[:, 7:2007])
    check(torch.randn(9, 500, device=DEVICE)[::3])


def test_adjusted_rows_stand_in_for_others() -> None:
    from quire.ops.triton.argmax import argmax

    torch.manual_seed(6)
    logits = torch.randn(6, 5000, device=DEVICE).to(torch.bfloat16)
    values, which = torch.randn(6, 5000, device=DEVICE), torch.arange(6, device=DEVICE) % 2 == 1
    values[3] = -torch.inf
    values[2] = torch.nan  # nobody may look at it
    found = argmax(logits, Adjusted(values, which))
    for one, other in zip(found, reference(torch.where(which[:, None], values, logits.float())), strict=True):
        assert torch.equal(one, other)
