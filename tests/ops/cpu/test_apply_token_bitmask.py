"""Masks by numpy and by torch: the same logits."""

import pytest
import torch

from quire.ops.cpu import apply_token_bitmask as cpu
from quire.ops.reference.apply_token_bitmask import apply_token_bitmask as reference


@pytest.mark.parametrize("at_once", [1, 1 << 16])
@pytest.mark.parametrize(
    ("vocabulary", "rows"), [(32, [0]), (5000, [3, 1]), (33, [0, 1, 2, 4]), (31, []), (1, [1]), (70_000, [4, 0])]
)
@pytest.mark.parametrize("strided", [False, True])
def test_rows(vocabulary: int, rows: list[int], strided: bool, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_AT_ONCE", at_once)
    torch.manual_seed(vocabulary)
    logits = torch.randn(len(rows), vocabulary + 7)[:, :vocabulary] if strided else torch.randn(len(rows), vocabulary)
    logits[:1, 0] = float("nan")
    masks = torch.randint(-(1 << 31), 1 << 31, (5, -(-vocabulary // 32) + 1)).to(torch.int32)
    masks[4] = -1
    which = torch.tensor(rows, dtype=torch.int64)
    wanted = logits.clone()
    reference(wanted, masks, which)
    cpu.apply_token_bitmask(logits, masks, which)
    assert torch.equal(logits.nan_to_num(5.0), wanted.nan_to_num(5.0))
    assert torch.equal(logits.isnan(), wanted.isnan())
