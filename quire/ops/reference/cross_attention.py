"""cross_attention: the definition, one token after the other."""

import torch
from torch import Tensor

from quire.ops.reference.paged_attention import attend


def cross_attention(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, num_positions: int, scale: float
) -> Tensor:
    """See `quire.ops.functional.cross_attention`."""
    output = torch.empty_like(query)
    for token, slot in enumerate(slots.tolist()):
        key, value = keys[slot, :num_positions], values[slot, :num_positions]
        output[token] = attend(query[token : token + 1], key, value, None, scale, None)[0]
    return output
