"""What a mask leaves out becomes -inf, bit by bit; the rest, and rows without a mask, stay what they were."""

import pytest
import torch

from quire.ops.reference.apply_token_bitmask import apply_token_bitmask


def masked(logits: torch.Tensor, masks: torch.Tensor, places: list[int]) -> torch.Tensor:
    """The same in words."""
    wanted = logits.clone()
    for number, place in enumerate(places):
        for token in range(logits.shape[1]):
            if not (int(masks[number, token // 32]) & 0xFFFFFFFF) >> (token % 32) & 1:
                wanted[place, token] = float("-inf")
    return wanted


@pytest.mark.parametrize("vocabulary", [1, 31, 32, 33, 199])
def test_bits_are_tokens(vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    logits = torch.randn(5, vocabulary)
    masks = torch.randint(-(1 << 31), 1 << 31, (3, -(-vocabulary // 32)), dtype=torch.int64).to(torch.int32)
    places = [4, 0, 2]
    wanted = masked(logits, masks, places)
    apply_token_bitmask(logits, masks, torch.tensor(places))
    assert torch.equal(logits, wanted)


def test_a_mask_may_reach_beyond_the_logits() -> None:
    logits = torch.zeros(1, 40)
    apply_token_bitmask(logits, torch.tensor([[-1, 1, 0, 0]], dtype=torch.int32), torch.tensor([0]))
    assert logits.isfinite().sum() == 33


def test_no_masks() -> None:
    logits = torch.zeros(2, 10)
    apply_token_bitmask(logits, torch.zeros(0, 1, dtype=torch.int32), torch.zeros(0, dtype=torch.int64))
    assert not logits.any()
