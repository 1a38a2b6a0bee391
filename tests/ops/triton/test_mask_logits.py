"""Some rows of logits under masks of their own, from the kernel and from torch; what is broken stays so."""

import pytest
import torch

from quire.ops.reference.mask_logits import mask_logits as reference
from tests.ops.triton.device import DEVICE, DTYPES, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize("vocabulary", [1, 33, 70, 5000])
@pytest.mark.parametrize("places", [[], [3], [4, 0, 2]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_as_the_reference(vocabulary: int, places: list[int], dtype: torch.dtype) -> None:
    from quire.ops.triton.mask_logits import mask_logits

    torch.manual_seed(vocabulary)
    logits = torch.randn(5, vocabulary).to(dtype)
    logits[2, 0], logits[3, -1], logits[4, vocabulary // 2] = torch.nan, torch.inf, -torch.inf
    words = -(-vocabulary // 32) + 1  # a tokenizer may have more tokens than the model has logits
    masks = torch.randint(-(1 << 31), 1 << 31, (len(places), words)).to(torch.int32)
    which, wanted = torch.tensor(places, dtype=torch.int64), logits.clone()
    reference(wanted, which, masks)
    found = logits.to(DEVICE)
    mask_logits(found, which.to(DEVICE), masks.to(DEVICE))
    assert torch.equal(found.cpu().nan_to_num(5.0), wanted.nan_to_num(5.0))
    assert torch.equal(found.cpu().isnan(), wanted.isnan())
    assert logits[2].isnan().any() == found[2].isnan().any()
