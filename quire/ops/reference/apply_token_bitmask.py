"""apply_token_bitmask: logits of tokens that a mask leaves out become -inf. A bit a token, 32 tokens a word."""

import torch
from torch import Tensor


def apply_token_bitmask(logits: Tensor, masks: Tensor, places: Tensor) -> None:
    vocabulary = logits.shape[1]
    bits = torch.arange(32, dtype=torch.int32, device=masks.device)
    # [masks, words, 32], lowest bit first
    allowed = ((masks[:, :, None] >> bits) & 1).to(torch.bool).flatten(1)[:, :vocabulary]
    logits[places] = logits[places].masked_fill(~allowed, float("-inf"))
