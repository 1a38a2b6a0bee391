"""LatentAttention: attention whose keys and values are made of one cached vector a token, in SelfAttention's parts."""

from torch import Tensor, nn

from quire.layers.attention import Angles
from quire.layers.batch import Batch
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.policy import WeightPolicy
from quire.ops.functional import latent_attention, prepare_latent
from quire.ops.lora_tensors import AdapterRows
from quire.spec.latent import LatentAttentionSpec


class LatentAttention(nn.Module):
    """Multi-head latent attention (MLA) of one layer."""

    def __init__(self, spec: LatentAttentionSpec, layer: int, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._layer = layer
        self._down = Linear(spec.down, policy)
        self._query = None if spec.query is None else Linear(spec.query, policy)
        self._query_norm = None if spec.query_norm is None else Norm(spec.query_norm, policy)
        self._latent_norm = Norm(spec.latent_norm, policy)
        self._up = policy.up_weight(spec.up)
        self._output = Linear(spec.out, policy)
        self._cached = spec.latent_dim + spec.rope_dim

    def project(self, x: Tensor, adapters: AdapterRows | None = None) -> tuple[Tensor, Tensor]:
        """Queries [tokens, heads * head_dim], and what is to be cached before its norm and its turn."""
        projected: Tensor = self._down(x, adapters)
        sizes = (projected.shape[1] - self._cached, self._cached)
        query, compressed = projected.split(sizes, dim=1)  # type: ignore[no-untyped-call]
        if self._query is not None:
            query = self._query(query if self._query_norm is None else self._query_norm(query), adapters)
        return query, compressed

    def attend(self, heads: tuple[Tensor, Tensor], angles: Angles | None, batch: Batch) -> Tensor:
        """What each token takes from those it sees; the only part that knows of a cache."""
        assert angles is not None, "a part of every head is turned"
        spec, cache = self._spec, batch.kv[self._layer]
        query, compressed = heads
        tokens = query.shape[0]
        query, latents = prepare_latent(
            query.view(tokens, spec.num_heads, spec.head_dim),
            compressed,
            self._latent_norm.weight,
            spec.latent_norm.eps,
            angles,
            cache.keys,
            batch.slots[cache.group],
            cache.scales,
        )
        mixed = latent_attention(
            query,
            latents,
            self._up.values,
            cache.keys,
            batch.tables[cache.group],
            batch.query_starts,
            batch.lengths,
            nope_dim=spec.nope_dim,
            scale=spec.scale,
            scales=cache.scales,
            pasts=batch.pasts,
        )
        return mixed.reshape(tokens, -1)

    def output(self, mixed: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        output: Tensor = self._output(mixed, adapters)
        return output
