"""LayerSpec: one layer of a model: its attention, its MLP, and how norms and residuals join them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quire.spec.cache import CacheSpec, CrossCache, KeyValueCache
from quire.spec.experts import ExpertsSpec
from quire.spec.latent import LatentAttentionSpec
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import MlpSpec
from quire.spec.norm import NormSpec
from quire.spec.tensor import TensorSpec

Span = Literal["head", "all"]
Wiring = Literal["sequential", "parallel", "post", "cross"]
"""How a layer adds to the residual stream x:

- sequential: x + attention(norm(x)), then x + mlp(norm(x));
- cross: the same, with x + cross(norm(x)) in between, which looks at what an encoder made;
- parallel: x + attention(norm(x)) + mlp(norm(x));
- post: norm(x + attention(x)), then norm(x + mlp(x)), as the first transformers did.
"""


@dataclass(frozen=True, slots=True)
class HeadNormsSpec:
    """Norms of queries and keys before positions turn them: of each head, or of all heads as one vector."""

    query: NormSpec
    key: NormSpec
    span: Span = "head"


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Queries, keys and values of one layer, and what a token may look at."""

    qkv: MatrixSpec
    """Rows are the heads of queries, then of keys, then of values."""
    out: MatrixSpec
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    """Positions that a token looks back, itself included; in both directions, how far it looks to either side."""
    softcap: float | None = None
    rope: int | None = None
    """Which of the model's sets of angles turns the heads; None: none does."""
    head_norms: HeadNormsSpec | None = None
    chunk: int | None = None
    """Instead of a window: a token sees only those of its own stretch of so many positions."""
    sinks: TensorSpec | None = None
    """[heads]: scores of a key without a value, which takes a share of every token's attention."""
    has_temperature: bool = False
    """Whether queries are multiplied by the model's temperature of their positions."""
    causal: bool = True
    """Whether a token sees only those before it; otherwise it sees its whole sequence, and nothing is cached."""

    @property
    def cache(self) -> CacheSpec | None:
        # a chunk is seen from its last position at the farthest, as by a window of its size
        window = self.window or self.chunk
        return KeyValueCache(self.num_kv_heads, self.head_dim, window) if self.causal else None

    @property
    def widest(self) -> int:
        """Elements a token takes between the two matrices."""
        return self.qkv.rows + self.attended

    @property
    def attended(self) -> int:
        """Numbers of keys that one token multiplies with for each token it sees; of values there are as many."""
        return self.num_heads * self.head_dim

    def matrices(self) -> Iterator[MatrixSpec]:
        yield self.qkv
        yield self.out

    def vectors(self) -> Iterator[TensorSpec]:
        """What is neither a matrix nor a norm."""
        if self.sinks is not None:
            yield self.sinks

    def norms(self) -> Iterator[NormSpec]:
        if self.head_norms is not None:
            yield self.head_norms.query
            yield self.head_norms.key


@dataclass(frozen=True, slots=True)
class CrossAttentionSpec:
    """Queries of tokens, and keys and values of what an encoder made of a sequence's media."""

    query: MatrixSpec
    keys_values: MatrixSpec
    """Rows are the heads of keys, then of values."""
    out: MatrixSpec
    norm: NormSpec
    """Of what the queries are made of."""
    num_heads: int
    head_dim: int
    scale: float
    num_positions: int
    """That the encoder gives."""

    @property
    def cache(self) -> CrossCache:
        return CrossCache(self.num_heads, self.head_dim, self.num_positions)

    def matrices(self) -> Iterator[MatrixSpec]:
        yield self.query
        yield self.keys_values
        yield self.out


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """Norms that are None are not there; in a parallel layer the MLP then reads what attention reads."""

    attention: AttentionSpec | LatentAttentionSpec
    mlp: MlpSpec | ExpertsSpec
    attention_norm: NormSpec | None = None
    mlp_norm: NormSpec | None = None
    added_attention_norm: NormSpec | None = None
    """Of what attention adds to the residual stream."""
    added_mlp_norm: NormSpec | None = None
    wiring: Wiring = "sequential"
    residual_scale: float = 1.0
    """What everything that is added is multiplied by."""
    cross: CrossAttentionSpec | None = None
    """Between attention and MLP, in layers wired so."""

    def matrices(self) -> Iterator[MatrixSpec]:
        yield from self.attention.matrices()
        if self.cross is not None:
            yield from self.cross.matrices()
        yield from self.mlp.matrices()

    def norms(self) -> Iterator[NormSpec]:
        yield from self.attention.norms()
        cross = None if self.cross is None else self.cross.norm
        given = (self.attention_norm, cross, self.mlp_norm, self.added_attention_norm, self.added_mlp_norm)
        yield from (norm for norm in given if norm is not None)

    def vectors(self) -> Iterator[TensorSpec]:
        """Tensors of no matrix and no norm."""
        yield from self.attention.vectors()
        yield from self.mlp.vectors()

    def widest(self) -> tuple[int, int]:
        """Elements a token takes at the widest point, beside the residual stream: (whole, cut between ranks)."""
        return 3 * self.attention.out.rows, max(self.attention.widest, self.mlp.widest)
