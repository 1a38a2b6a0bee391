"""The rms_norm kernel against its definition."""

import pytest
import torch

from quire.ops.reference.rms_norm import rms_norm as reference
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton

pytestmark = needs_triton


def check(x: torch.Tensor, *, offset: float = 0.0) -> None:
    from quire.ops.triton.rms_norm import rms_norm

    weight = torch.randn(x.shape[-1], dtype=x.dtype, device=DEVICE)
    normed = rms_norm(x, weight, 1e-6, offset)
    assert normed.is_contiguous()
    close = TOLERANCES[x.dtype]
    torch.testing.assert_close(normed, reference(x, weight, 1e-6, offset), rtol=close, atol=close)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1024), (3, 96), (2, 2880), (5, 1), (17, 128), (1, 8192), (0, 64)])
def test_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    check(torch.randn(shape, dtype=dtype, device=DEVICE))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 128), (3, 5, 80), (9, 4, 256), (0, 4, 128)])
def test_heads(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    check(torch.randn(shape, dtype=dtype, device=DEVICE), offset=1.0)


def test_heads_of_a_fused_projection() -> None:
    torch.manual_seed(3)
    projected = torch.randn(7, 12, 64, dtype=torch.float16, device=DEVICE)
    check(projected[:, 3:8])
    check(projected[1::2, ::3])


def test_rows_of_a_wider_tensor() -> None:
    torch.manual_seed(4)
    check(torch.randn(4, 300, device=DEVICE)[:, 7:207])


def test_large_and_small_values_keep_their_precision() -> None:
    """The squares of neither fit float16."""
    torch.manual_seed(5)
    check(torch.randn(2, 256, dtype=torch.float16, device=DEVICE) * 1e4)
    check(torch.randn(2, 256, device=DEVICE) * 1e-3)


def test_a_weight_of_another_type() -> None:
    from quire.ops.triton.rms_norm import rms_norm

    torch.manual_seed(6)
    x, weight = torch.randn(3, 64, dtype=torch.float16, device=DEVICE), torch.randn(64, device=DEVICE)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5, 0.5), reference(x, weight, 1e-5, 0.5), rtol=4e-3, atol=4e-3)
