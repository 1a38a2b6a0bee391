"""The token with the largest logit from the kernels and from torch: the same, and the same rows without any."""

import pytest
import torch

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


@pytest.mark.parametrize("programs", [1, 9, 1000])
def test_parts_of_any_length(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ops.triton.argmax._PROGRAMS", programs)
    torch.manual_seed(4)
    check(torch.randint(-20, 20, (5, 5000), device=DEVICE).float())


def test_a_large_vocabulary() -> None:
    torch.manual_seed(4)
    check(torch.randn(1, 262_144, device=DEVICE))


def test_rows_of_a_wider_tensor() -> None:
    torch.manual_seed(5)
    check(torch.randn(4, 3000, device=DEVICE)[:, 7:2007])
    check(torch.randn(9, 500, device=DEVICE)[::3])


def test_a_share_is_never_empty_and_all_have_everything() -> None:
    from quire.ops.triton.argmax import BLOCK, share_rows

    for rows in (1, 2, 7, 64, 256, 512, 2000):
        for columns in (1, BLOCK, BLOCK + 1, 32_000, 128_256, 151_936, 262_144):
            parts, span = share_rows(rows, columns)
            assert span % BLOCK == 0
            assert (parts - 1) * span < columns <= parts * span
    assert share_rows(1, 151_936)[0] == 149
