"""The add_layer_norm kernel against its definition."""

import pytest
import torch

from quire.ops.reference.layer_norm import layer_norm
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton

pytestmark = needs_triton


def check(x: torch.Tensor, added: torch.Tensor, *, has_bias: bool = True) -> torch.Tensor:
    """The sum, once it and the norm are right."""
    from quire.ops.triton.add_layer_norm import add_layer_norm

    weight, bias = torch.randn(2, x.shape[-1], dtype=x.dtype, device=DEVICE)
    given = bias if has_bias else None
    expected, unchanged = x + added, added.clone()
    total, normed = add_layer_norm(x, added, weight, given, 1e-5)
    close = TOLERANCES[x.dtype]
    torch.testing.assert_close(total, expected, rtol=close, atol=close)
    # of the sum as it came out, not as it should: the norm is that of what is stored
    torch.testing.assert_close(normed, layer_norm(total, weight, given, 1e-5), rtol=close, atol=close)
    assert torch.equal(added, unchanged)
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1024), (3, 96), (2, 2880), (5, 1), (17, 128), (1, 8192), (0, 64)])
def test_rows(shape: tuple[int, int], has_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, added = torch.randn(2, *shape, dtype=dtype, device=DEVICE)
    total = check(x, added, has_bias=has_bias)
    assert total.data_ptr() == x.data_ptr()


def test_rows_of_wider_tensors_are_left_alone() -> None:
    torch.manual_seed(2)
    wide = torch.randn(4, 300, device=DEVICE)
    before = wide.clone()
    total = check(wide[:, :128], wide[:, 172:])
    assert torch.equal(wide, before)
    assert total.is_contiguous()


def test_the_norm_sees_the_rounded_sum() -> None:
    """2048 + 0.9 is 2048 in float16, so nothing of the row is left but its mean."""
    from quire.ops.triton.add_layer_norm import add_layer_norm

    x = torch.full((1, 256), 2048.0, dtype=torch.float16, device=DEVICE)
    added = torch.zeros_like(x)
    added[0, ::2] = 0.9
    weight = torch.ones(256, dtype=torch.float16, device=DEVICE)
    total, normed = add_layer_norm(x, added, weight, None, 1e-5)
    assert (total == 2048).all()
    assert normed.count_nonzero() == 0
