"""attend_lengths: packed attention by lengths that the host knows: sequences of one length are one batch."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def attend_lengths(query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float) -> Tensor:
    """Every token attends to all tokens of its sequence; all: [tokens, heads, head_dim]."""
    parts: list[Tensor] = []
    start = 0
    for length, equal in groupby(lengths):
        count = len(list(equal))
        end = start + count * length
        queries, keys, values = (
            each[start:end].view(count, length, *each.shape[1:]).transpose(1, 2) for each in (query, key, value)
        )
        mixed = scaled_dot_product_attention(queries, keys, values, scale=scale)
        parts.append(mixed.transpose(1, 2).flatten(0, 1))
        start = end
    return parts[0] if len(parts) == 1 else torch.cat(parts)
