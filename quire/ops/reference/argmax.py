"""argmax: the token with the largest logit of every row, and which rows have none."""

from torch import Tensor


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    peaks, tokens = logits.max(dim=-1)
    invalid = peaks - peaks != 0  # NaN and both infinities
    return tokens.masked_fill(invalid, 0), invalid
