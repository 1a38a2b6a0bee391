"""SelfAttention: from a layer's input to what attention makes of it, in three parts that can be told apart."""

from torch import Tensor, nn

from quire.layers.attention import Angles, BidirectionalAttention, PagedAttention
from quire.layers.batch import Batch
from quire.layers.linear import Linear
from quire.layers.norm import Norm
from quire.layers.norm_over_ranks import NormOverRanks
from quire.layers.policy import WeightPolicy
from quire.layers.sinks import Sinks
from quire.ops.head_norms import HeadNorms
from quire.ops.lora_tensors import AdapterRows
from quire.spec.layer import AttentionSpec


class SelfAttention(nn.Module):
    """Queries, keys and values of one layer."""

    def __init__(self, spec: AttentionSpec, layer: int, policy: WeightPolicy) -> None:
        super().__init__()
        self._spec = spec
        self._projection = Linear(spec.qkv, policy)
        self._output = Linear(spec.out, policy)
        self._attention = _attention(spec, layer)
        self._sinks = None if spec.sinks is None else Sinks(spec.sinks, policy)
        self._query_norm: Norm | None = None
        self._key_norm: Norm | None = None
        if spec.head_norms is not None:
            self._query_norm = Norm(spec.head_norms.query, policy)
            self._key_norm = Norm(spec.head_norms.key, policy)
        self._norm_over_ranks: NormOverRanks | None = None
        if policy.group is not None and spec.head_norms is not None and spec.head_norms.span == "all":
            self._norm_over_ranks = NormOverRanks(spec.head_norms, policy.group)

    def project(self, x: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """All heads: queries, keys and values."""
        heads: Tensor = self._projection(x, adapters)
        return heads

    def attend(self, heads: Tensor, angles: Angles | None, batch: Batch) -> Tensor:
        """What each token takes from those it sees; the only part that knows of a cache."""
        tokens = heads.shape[0]
        if self._norm_over_ranks is not None:
            assert self._query_norm is not None
            assert self._key_norm is not None
            heads = self._norm_over_ranks(heads, self._query_norm.weight, self._key_norm.weight)
        heads = heads.view(tokens, -1, self._spec.head_dim)
        sinks = () if self._sinks is None else (self._sinks.values,)
        mixed: Tensor = self._attention(heads, self._norms(), angles, batch, *sinks)
        return mixed.reshape(tokens, -1)

    def output(self, mixed: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        output: Tensor = self._output(mixed, adapters)
        return output

    def _norms(self) -> HeadNorms | None:
        query, key, given = self._query_norm, self._key_norm, self._spec.head_norms
        if query is None or key is None or given is None or self._norm_over_ranks is not None:
            return None
        spec = given.query
        assert spec.kind != "scale", "heads are normed, not scaled alone"
        return HeadNorms(query.weight, key.weight, spec.eps, spec.offset, spec.kind, given.span)


def _attention(spec: AttentionSpec, layer: int) -> PagedAttention | BidirectionalAttention:
    if not spec.causal:
        return BidirectionalAttention(spec)
    return PagedAttention(
        layer,
        spec.num_kv_heads,
        spec.scale,
        window=spec.window,
        softcap=spec.softcap,
        chunk=spec.chunk,
        has_temperature=spec.has_temperature,
    )
