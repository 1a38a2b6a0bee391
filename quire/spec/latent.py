"""LatentAttentionSpec: attention whose keys and values are all made of one vector a token (MLA). Torch-free."""

from collections.abc import Iterator
from dataclasses import dataclass

from quire.spec.cache import LatentCache
from quire.spec.matrix import MatrixSpec
from quire.spec.norm import NormSpec
from quire.spec.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class LatentAttentionSpec:
    """A head's key is `up` of the latent, then a rotary part that all heads share; its value is `up` of the latent.

    `up` may as well be moved from keys to queries, and from values to what attention makes of latents (the absorbed
    form): then all heads attend to the cache as it is.
    """

    down: MatrixSpec
    """Of the layer's input: the queries or, where `query` makes these, their latent; then that of keys and values, then
    the rotary part of keys."""
    latent_norm: NormSpec
    """Of the latent of keys and values, before it is cached."""
    up: MatrixSpec
    """Rows are the keys of all heads, without their rotary part, then the values of all heads."""
    out: MatrixSpec
    num_heads: int
    nope_dim: int
    """Of queries and keys, what positions do not turn …"""
    rope_dim: int
    """… and what they turn."""
    value_dim: int
    scale: float
    query: MatrixSpec | None = None
    """Makes queries of their latent."""
    query_norm: NormSpec | None = None
    """Of that latent."""
    rope: int | None = 0
    """Which of the model's sets of angles turns them."""
    causal: bool = True
    window: int | None = None
    chunk: int | None = None

    @property
    def latent_dim(self) -> int:
        return self.up.columns

    @property
    def head_dim(self) -> int:
        """Of a query."""
        return self.nope_dim + self.rope_dim

    @property
    def num_kv_heads(self) -> int:
        """All heads attend to the same."""
        return 1

    @property
    def cache(self) -> LatentCache:
        return LatentCache(self.latent_dim, self.rope_dim)

    @property
    def widest(self) -> int:
        """Elements a token takes between `down` and `out`: in absorbed form, queries and what they find are as wide as
        what is cached.
        """
        made = 0 if self.query is None else self.query.rows
        return self.down.rows + made + self.num_heads * (2 * self.latent_dim + self.rope_dim + self.value_dim)

    @property
    def attended(self) -> int:
        """Numbers of keys and values that one token multiplies with for each token it sees, halved."""
        return self.num_heads * (2 * self.latent_dim + self.rope_dim) // 2

    def matrices(self) -> Iterator[MatrixSpec]:
        yield self.down
        if self.query is not None:
            yield self.query
        yield self.up
        yield self.out

    def norms(self) -> Iterator[NormSpec]:
        yield self.latent_norm
        if self.query_norm is not None:
            yield self.query_norm

    def vectors(self) -> Iterator[TensorSpec]:
        """What is neither a matrix nor a norm: nothing."""
        yield from ()
