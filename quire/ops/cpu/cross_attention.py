"""cross_attention on a CPU: neighbouring tokens of one slot at a time, by torch's fused attention."""

from itertools import groupby

import torch
from torch import Tensor

from quire.ops.fused_attention import fused_attention


def cross_attention(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, num_positions: int, scale: float
) -> Tensor:
    """See `quire.ops.functional.cross_attention`."""
    output = torch.empty_like(query)
    begin = 0
    for slot, tokens in groupby(slots.tolist()):
        end = begin + sum(1 for _ in tokens)
        key, value = keys[slot, :num_positions], values[slot, :num_positions]
        output[begin:end] = fused_attention(query[begin:end], key, value, scale)
        begin = end
    return output
