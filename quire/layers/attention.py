"""Attention: writes a layer's new keys and values to the paged cache and attends over it."""

from torch import Tensor, nn

from quire.layers.batch import Batch
from quire.ops.functional import paged_attention, write_kv


class Attention(nn.Module):
    """Owns no weights; knows its layer's place in the cache and what it may look at."""

    def __init__(self, layer: int, scale: float, *, window: int | None = None, softcap: float | None = None) -> None:
        super().__init__()
        self._layer = layer
        self._scale = scale
        self._window = window
        self._softcap = softcap

    def forward(self, query: Tensor, key: Tensor, value: Tensor, batch: Batch) -> Tensor:
        """query: [tokens, heads, head_dim]; key and value: [tokens, kv_heads, head_dim]."""
        cache = batch.kv[self._layer]
        write_kv(key, value, cache.keys, cache.values, batch.slots[cache.group])
        return paged_attention(
            query,
            cache.keys,
            cache.values,
            batch.tables[cache.group],
            batch.query_starts,
            batch.lengths,
            scale=self._scale,
            window=self._window,
            softcap=self._softcap,
        )
