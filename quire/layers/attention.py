"""Attention: takes a layer's new keys and values into the paged cache and attends over it."""

from torch import Tensor, nn

from quire.layers.batch import Batch
from quire.ops.functional import prepare_heads
from quire.ops.head_norms import HeadNorms


class Attention(nn.Module):
    """Owns no weights; knows its layer's place in the cache and what it may look at."""

    def __init__(self, layer: int, scale: float, *, window: int | None = None, softcap: float | None = None) -> None:
        super().__init__()
        self._layer = layer
        self.scale = scale
        self.window = window
        self.softcap = softcap

    def forward(
        self,
        heads: Tensor,
        num_kv_heads: int,
        norms: HeadNorms | None,
        angles: tuple[Tensor, Tensor] | None,
        batch: Batch,
    ) -> Tensor:
        """heads: [tokens, those of queries, keys and values, head_dim], as the layer's projection gives them."""
        cache = batch.kv[self._layer]
        query = prepare_heads(heads, num_kv_heads, norms, angles, cache.keys, cache.values, batch.slots[cache.group])
        return batch.attend(
            query,
            cache.keys,
            cache.values,
            batch.tables[cache.group],
            batch.query_starts,
            batch.lengths,
            scale=self.scale,
            window=self.window,
            softcap=self.softcap,
        )
