"""Attention of one layer: over the paged cache, or to both sides within a sequence."""

from torch import Tensor, nn

from quire.layers.batch import Batch
from quire.ops.functional import packed_attention, prepare_heads, rotary
from quire.ops.head_norms import HeadNorms
from quire.spec.layer import AttentionSpec

Angles = tuple[Tensor, Tensor]


class PagedAttention(nn.Module):
    """Takes a layer's new keys and values into the cache and attends over it. Owns no weights."""

    def __init__(
        self,
        layer: int,
        num_kv_heads: int,
        scale: float,
        *,
        window: int | None = None,
        softcap: float | None = None,
        chunk: int | None = None,
        has_temperature: bool = False,
    ) -> None:
        super().__init__()
        self._layer = layer
        self._num_kv_heads = num_kv_heads
        self.scale = scale
        self.window = window
        self.softcap = softcap
        self.chunk = chunk
        self._has_temperature = has_temperature

    def forward(
        self,
        heads: Tensor,
        norms: HeadNorms | None,
        angles: Angles | None,
        batch: Batch,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """heads: [tokens, those of queries, keys and values, head_dim], as the layer's projection gives them."""
        cache = batch.kv[self._layer]
        slots = batch.slots[cache.group]
        query = prepare_heads(heads, self._num_kv_heads, norms, angles, cache.keys, cache.values, slots, cache.scales)
        if self._has_temperature:
            assert batch.temperatures is not None, "the model gives them to its batches"
            query = (query * batch.temperatures.view(-1, 1, 1)).to(query.dtype)
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
            scales=cache.scales,
            sinks=sinks,
            chunk=self.chunk,
        )


class BidirectionalAttention(nn.Module):
    """Every token attends to its whole sequence, or to a window on both sides; nothing is cached."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self._spec = spec

    def forward(self, heads: Tensor, norms: HeadNorms | None, angles: Angles | None, batch: Batch) -> Tensor:
        spec = self._spec
        assert norms is None, "no encoder norms its heads"
        counts = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        query: Tensor
        query, key, value = heads.split(counts, dim=1)  # type: ignore[no-untyped-call]
        if angles is not None:
            query, key = rotary(query, *angles), rotary(key, *angles)
        window = None if spec.window is None else 2 * spec.window
        return packed_attention(
            query,
            key,
            value,
            batch.query_starts,
            scale=spec.scale,
            window=window,
            bias=batch.score_bias,
            lengths=batch.known_lengths,
        )
