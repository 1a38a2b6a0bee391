"""The add_rms_norm kernel against its definition."""

import pytest
import torch

from quire.ops.reference.rms_norm import rms_norm
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton

pytestmark = needs_triton


def check(x: torch.Tensor, added: torch.Tensor, *, offset: float = 0.0) -> torch.Tensor:
    """The sum, once it and the norm are right."""
    from quire.ops.triton.add_rms_norm import add_rms_norm

    weight = torch.randn(x.shape[-1], dtype=x.dtype, device=DEVICE)
    expected, unchanged = x + added, added.clone()
    total, normed = add_rms_norm(x, added, weight, 1e-6, offset)
    close = TOLERANCES[x.dtype]
    torch.testing.assert_close(total, expected, rtol=close, atol=close)
    # of the sum as it came out, not as it should: the norm is that of what is stored
    torch.testing.assert_close(normed, rms_norm(total, weight, 1e-6, offset), rtol=close, atol=close)
    assert torch.equal(added, unchanged)
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1024), (3, 96), (2, 2880), (5, 1), (17, 128), (1, 8192), (0, 64)])
def test_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, added = torch.randn(2, *shape, dtype=dtype, device=DEVICE)
    total = check(x, added, offset=1.0)
    assert total.data_ptr() == x.data_ptr()


def test_rows_of_wider_tensors_are_left_alone() -> None:
    torch.manual_seed(2)
    wide = torch.randn(4, 300, device=DEVICE)
    before = wide.clone()
    total = check(wide[:, :128], wide[:, 172:])
    assert torch.equal(wide, before)
    assert total.is_contiguous()


def test_the_norm_sees_the_rounded_sum() -> None:
    """2048.9 is 2048 in float16. The last of the row, about 1, tells by one bit which of the two the norm has seen."""
    from quire.ops.triton.add_rms_norm import add_rms_norm

    x = torch.full((1, 256), 2048.0, dtype=torch.float16, device=DEVICE)
    added = torch.full_like(x, 0.9)
    x[0, -1], added[0, -1] = 1.0, 0.0
    weight = torch.full((256,), 2043.0, dtype=torch.float16, device=DEVICE)
    exact = rms_norm(x.float() + added.float(), weight, 1e-6, 0.0).half()
    total, normed = add_rms_norm(x, added, weight, 1e-6, 0.0)
    assert (total[0, :-1] == 2048).all()
    assert normed[0, -1] == rms_norm(total, weight, 1e-6, 0.0)[0, -1] != exact[0, -1]
