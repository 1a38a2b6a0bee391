"""What a row's mask leaves out becomes -inf, bit by bit; the rest stays what it was."""

import pytest
import torch

from quire.ops.reference.apply_token_bitmask import apply_token_bitmask


def masked(logits: torch.Tensor, masks: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """The same in words."""
    wanted = logits.clone()
    for place, row in enumerate(rows):
        for token in range(logits.shape[1]):
            if not (int(masks[row, token // 32]) & 0xFFFFFFFF) >> (token % 32) & 1:
                wanted[place, token] = float("-inf")
    return wanted


@pytest.mark.parametrize("vocabulary", [1, 31, 32, 33, 199])
def test_bits_are_tokens(vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    rows = [4, 0, 2]
    logits = torch.randn(len(rows), vocabulary)
    masks = torch.randint(-(1 << 31), 1 << 31, (5, -(-vocabulary // 32)), dtype=torch.int64).to(torch.int32)
    wanted = masked(logits, masks, rows)
    apply_token_bitmask(logits, masks, torch.tensor(rows))
    assert torch.equal(logits, wanted)


def test_a_mask_may_reach_beyond_the_logits() -> None:
    logits = torch.zeros(1, 40)
    apply_token_bitmask(logits, torch.tensor([[-1, 1, 0, 0]], dtype=torch.int32), torch.tensor([0]))
    assert logits.isfinite().sum() == 33


def test_a_mask_of_ones_leaves_nothing_out() -> None:
    logits = torch.randn(2, 40)
    wanted = logits.clone()
    apply_token_bitmask(logits, torch.full((3, 2), -1, dtype=torch.int32), torch.tensor([2, 0]))
    assert torch.equal(logits, wanted)
