"""Masks from the kernel and from torch: the same logits, on one row and on some of many."""

import pytest
import torch

from quire.ops.reference.apply_token_bitmask import apply_token_bitmask as reference
from tests.ops.triton.device import DEVICE, needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize(
    ("rows", "vocabulary", "places"), [(1, 32, [0]), (4, 5000, [3, 1]), (3, 4097, [0, 1, 2]), (2, 31, []), (2, 1, [1])]
)
def test_rows(rows: int, vocabulary: int, places: list[int]) -> None:
    from quire.ops.triton.apply_token_bitmask import apply_token_bitmask

    torch.manual_seed(rows)
    logits = torch.randn(rows, vocabulary, device=DEVICE)
    words = -(-vocabulary // 32) + 1
    masks = torch.randint(-(1 << 31), 1 << 31, (len(places), words), device=DEVICE).to(torch.int32)
    where = torch.tensor(places, dtype=torch.int64, device=DEVICE)
    wanted = logits.clone()
    reference(wanted, masks, where)
    apply_token_bitmask(logits, masks, where)
    assert torch.equal(logits, wanted)
