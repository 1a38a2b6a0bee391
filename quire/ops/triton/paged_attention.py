"""paged_attention on GPUs: which kernel attends in which step."""

import torch
from torch import Tensor

from quire.ops.triton.attend_split import attend_split
from quire.ops.triton.attend_tiles import attend_tiles


def paged_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """See `quire.ops.functional.paged_attention`. The output is contiguous; the scale is above 0.

    Every sequence has a new token, so as many tokens as sequences are one each. Matmuls are computed in the type of
    the cache, those of fp8 in float16, and summed in float32.
    """
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    if not len(query):
        return output
    how = (scale, window, softcap, scales, sinks, chunk)
    if len(query) == len(lengths):
        attend_split(output, query, keys, values, tables, lengths, *how)
    else:
        attend_tiles(output, query, keys, values, tables, query_starts, lengths, *how)
    return output
