"""Masks by numpy and by torch: the same logits."""

import pytest
import torch

from quire.ops.cpu.apply_token_bitmask import apply_token_bitmask
from quire.ops.reference.apply_token_bitmask import apply_token_bitmask as reference


@pytest.mark.parametrize(
    ("rows", "vocabulary", "places"), [(1, 32, [0]), (4, 5000, [3, 1]), (3, 33, [0, 1, 2]), (2, 31, []), (2, 1, [1])]
)
@pytest.mark.parametrize("strided", [False, True])
def test_rows(rows: int, vocabulary: int, places: list[int], strided: bool) -> None:
    torch.manual_seed(rows)
    logits = torch.randn(rows, vocabulary + 7)[:, :vocabulary] if strided else torch.randn(rows, vocabulary)
    logits[0, 0] = float("nan")
    words = -(-vocabulary // 32) + 1
    masks = torch.randint(-(1 << 31), 1 << 31, (len(places), words)).to(torch.int32)
    where = torch.tensor(places, dtype=torch.int64)
    wanted = logits.clone()
    reference(wanted, masks, where)
    apply_token_bitmask(logits, masks, where)
    assert torch.equal(logits.nan_to_num(5.0), wanted.nan_to_num(5.0))
    assert torch.equal(logits.isnan(), wanted.isnan())
