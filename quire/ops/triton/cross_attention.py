"""cross_attention on a GPU: paged attention, each token being a sequence of its own whose blocks are its slot's."""

import torch
from torch import Tensor

from quire.ops.triton.paged_attention import paged_attention

BLOCK = 16


def cross_attention(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, num_positions: int, scale: float
) -> Tensor:
    """See `quire.ops.functional.cross_attention`."""
    each = keys.shape[1] // BLOCK
    paged_keys, paged_values = (kept.view(-1, BLOCK, *kept.shape[2:]) for kept in (keys, values))
    within = torch.arange(each, device=query.device)
    tables = (slots[:, None] * each + within).to(torch.int32)
    starts = torch.arange(len(query) + 1, device=query.device)
    lengths = torch.full((len(query),), num_positions, device=query.device)
    return paged_attention(query, paged_keys, paged_values, tables, starts, lengths, scale, None, None)
