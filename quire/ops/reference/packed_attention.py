"""packed_attention: the definition."""

from itertools import pairwise

import torch
from torch import Tensor

from quire.ops.reference.paged_attention import attend


def packed_attention(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, scale: float) -> Tensor:
    """Every token attends to all tokens of its sequence, sequences lying one after the other."""
    output = torch.empty_like(query)
    bounds = starts.tolist()
    for begin, end in pairwise(bounds):
        output[begin:end] = attend(query[begin:end], key[begin:end], value[begin:end], None, scale, None)
    return output
