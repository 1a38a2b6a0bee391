"""Some rows of logits under masks of their own, by numpy and by torch: the same logits, and others as they were."""

import pytest
import torch

from quire.ops.cpu.mask_logits import mask_logits
from quire.ops.reference.mask_logits import mask_logits as reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [1, 33, 5000])
def test_rows(vocabulary: int, dtype: torch.dtype) -> None:
    torch.manual_seed(vocabulary)
    logits = torch.randn(5, vocabulary).to(dtype)
    logits[0, 0], logits[2, 0], logits[3, -1] = torch.nan, torch.nan, torch.inf
    masks = torch.randint(-(1 << 31), 1 << 31, (3, -(-vocabulary // 32))).to(torch.int32)
    masks[1:, 0] &= -2  # the broken ones are left out, and stay
    places, found, wanted = torch.tensor([4, 2, 3]), logits.clone(), logits.clone()
    mask_logits(found, places, masks)
    reference(wanted, places, masks)
    assert torch.equal(found.nan_to_num(5.0), wanted.nan_to_num(5.0))
    assert torch.equal(found.isnan(), logits.isnan())
    assert torch.equal(found.isposinf(), logits.isposinf())
    assert torch.equal(found[:2].nan_to_num(5.0), logits[:2].nan_to_num(5.0))
    allowed = (masks[0, torch.arange(vocabulary) // 32] >> (torch.arange(vocabulary) % 32)) & 1
    assert torch.equal(found[4].isfinite(), allowed.bool())
