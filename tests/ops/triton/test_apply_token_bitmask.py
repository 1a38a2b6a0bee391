"""Masks from the kernel and from torch: the same logits, on one row and on some of many."""

import pytest
import torch

from quire.ops.reference.apply_token_bitmask import apply_token_bitmask as reference
from tests.ops.triton.device import DEVICE, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize(("vocabulary", "rows"), [(32, [0]), (5000, [3, 1]), (4097, [0, 1, 2, 4]), (31, []), (1, [1])])
def test_rows(vocabulary: int, rows: list[int]) -> None:
    from quire.ops.triton.apply_token_bitmask import apply_token_bitmask

    torch.manual_seed(vocabulary)
    logits = torch.randn(len(rows), vocabulary, device=DEVICE)
    masks = torch.randint(-(1 << 31), 1 << 31, (5, -(-vocabulary // 32) + 1), device=DEVICE).to(torch.int32)
    masks[4] = -1
    which = torch.tensor(rows, dtype=torch.int64, device=DEVICE)
    wanted = logits.clone()
    reference(wanted, masks, which)
    apply_token_bitmask(logits, masks, which)
    assert torch.equal(logits, wanted)
