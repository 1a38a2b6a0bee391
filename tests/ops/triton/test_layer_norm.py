"""The layer_norm kernel against its definition."""

import pytest
import torch

from quire.ops.reference.layer_norm import layer_norm as reference
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton

pytestmark = needs_triton

with_and_without_bias = pytest.mark.parametrize("has_bias", [True, False])


def check(x: torch.Tensor, *, has_bias: bool = True) -> None:
    from quire.ops.triton.layer_norm import layer_norm

    weight = torch.randn(x.shape[-1], dtype=x.dtype, device=DEVICE)
    bias = torch.randn(x.shape[-1], dtype=x.dtype, device=DEVICE) if has_bias else None
    normed = layer_norm(x, weight, bias, 1e-6)
    assert normed.is_contiguous()
    close = TOLERANCES[x.dtype]
    torch.testing.assert_close(normed, reference(x, weight, bias, 1e-6), rtol=close, atol=close)


@pytest.mark.parametrize("dtype", DTYPES)
@with_and_without_bias
@pytest.mark.parametrize("shape", [(1, 1024), (3, 96), (2, 2880), (5, 1), (17, 128), (1, 8192), (0, 64)])
def test_rows(shape: tuple[int, int], has_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    check(torch.randn(shape, dtype=dtype, device=DEVICE), has_bias=has_bias)


@pytest.mark.parametrize("dtype", DTYPES)
@with_and_without_bias
@pytest.mark.parametrize("shape", [(1, 1, 128), (3, 5, 80), (9, 4, 256), (0, 4, 128)])
def test_heads(shape: tuple[int, int, int], has_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    check(torch.randn(shape, dtype=dtype, device=DEVICE), has_bias=has_bias)


def test_rows_and_heads_of_wider_tensors() -> None:
    torch.manual_seed(3)
    check(torch.randn(4, 300, device=DEVICE)[:, 7:207])
    projected = torch.randn(7, 12, 64, dtype=torch.float16, device=DEVICE)
    check(projected[:, 3:8])
    check(projected[1::2, ::3])


@pytest.mark.parametrize("size", [100, 256])
def test_rows_far_from_zero_keep_their_precision(size: int) -> None:
    """Sums of squares would lose all of the variance, and zeros beyond an odd size must not count."""
    from quire.ops.triton.layer_norm import layer_norm

    torch.manual_seed(4)
    x, weight = torch.randn(2, size, device=DEVICE) + 1000, torch.ones(size, device=DEVICE)
    exact = reference(x.double(), weight.double(), None, 1e-6).float()
    torch.testing.assert_close(layer_norm(x, weight, None, 1e-6), exact, rtol=1e-3, atol=1e-3)


def test_a_weight_and_bias_of_another_type() -> None:
    from quire.ops.triton.layer_norm import layer_norm

    torch.manual_seed(5)
    x = torch.randn(3, 64, dtype=torch.float16, device=DEVICE)
    weight, bias = torch.randn(2, 64, device=DEVICE)
    exact = reference(x.float(), weight, bias, 1e-5).half()
    torch.testing.assert_close(layer_norm(x, weight, bias, 1e-5), exact, rtol=4e-3, atol=4e-3)
