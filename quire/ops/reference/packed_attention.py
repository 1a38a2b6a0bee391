"""packed_attention: the definition."""

from itertools import pairwise

import torch
from torch import Tensor

from quire.ops.reference.paged_attention import attend


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    scale: float,
    window: int | None,
    bias: Tensor | None,
) -> Tensor:
    """Every token attends to tokens of its sequence, sequences lying one after the other."""
    output = torch.empty_like(query)
    bounds = starts.tolist()
    for begin, end in pairwise(bounds):
        length = end - begin
        mask = None if window is None else _mask(length, window, query.device)
        added = None if bias is None else bias[:, :length, :length]
        tokens = slice(begin, end)
        output[tokens] = attend(query[tokens], key[tokens], value[tokens], mask, scale, None, added)
    return output


def _mask(length: int, window: int, device: torch.device) -> Tensor | None:
    """[queries, keys]: what each token may see; None when that is everything."""
    reach = window // 2
    if length <= reach + 1:
        return None
    positions = torch.arange(length, device=device)
    return (positions.unsqueeze(1) - positions).abs() <= reach
