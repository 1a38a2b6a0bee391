"""shared_prefix_attention: the definition, which reads a shared prefix for each of its sequences."""

from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention
from quire.ops.step_tensors import PrefixTiles


def shared_prefix_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    tiles: PrefixTiles,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """See `quire.ops.functional.shared_prefix_attention`."""
    step = (query, keys, values, tables, query_starts, lengths)
    return paged_attention(*step, scale, window, softcap, scales, sinks, chunk)
