"""apply_token_bitmask: logits of tokens that a mask leaves out become -inf. A bit a token, 32 tokens a word."""

import torch
from torch import Tensor


def apply_token_bitmask(logits: Tensor, masks: Tensor, rows: Tensor) -> None:
    bits = torch.arange(32, dtype=torch.int32, device=masks.device)
    # [n, words, 32], lowest bit first
    allowed = ((masks[rows][:, :, None] >> bits) & 1).to(torch.bool).flatten(1)[:, : logits.shape[1]]
    logits.masked_fill_(~allowed, float("-inf"))
