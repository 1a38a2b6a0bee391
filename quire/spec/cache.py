"""Cache kinds: what one token, or one sequence, leaves in the cache of a layer, how long it lives and what it takes.

What tokens leave lies in pages that all layers' kinds share; the fixed state of a sequence lies in its row.
"""

from dataclasses import dataclass, replace
from math import prod

from quire.core.errors import ConfigError

_BLOCK = 16
"""Positions; that of the kernels that read cross-attention's keys, whatever a token's own block size is."""


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """A key and a value for each KV head of every token; with a window, of the latest tokens only."""

    num_heads: int
    head_dim: int
    window: int | None = None
    """Tokens a layer looks back, itself included; None looks back to the start."""
    scale_bytes: int = 0
    """Where vectors are stored as bytes, those of the scale that each of them has beside it."""

    @property
    def planes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what one token leaves; each is a tensor of its own over all blocks."""
        plane = (self.num_heads, self.head_dim + self.scale_bytes)
        return plane, plane

    @property
    def elements_per_sequence(self) -> int:
        return 0

    def of_rank(self, ranks: int) -> "KeyValueCache":
        """What one of so many ranks keeps; a head is replicated where there are more ranks than heads."""
        if self.num_heads % ranks and ranks % self.num_heads:
            raise ConfigError(
                f"--tensor-parallel-size is {ranks}, but the model has {self.num_heads} KV heads; use a size that "
                f"divides {self.num_heads} or is a multiple of it."
            )
        return replace(self, num_heads=max(1, self.num_heads // ranks))

    def __str__(self) -> str:
        return f"{self.num_heads} KV heads × {self.head_dim}"


@dataclass(frozen=True, slots=True)
class LatentCache:
    """One vector for all heads of every token (multi-head latent attention): what keys and values are made of, and the
    part of the keys that positions turn. Every rank keeps all of it.
    """

    latent: int
    rotary: int
    window: int | None = None

    @property
    def planes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.latent + self.rotary,),)

    @property
    def elements_per_sequence(self) -> int:
        return 0

    def of_rank(self, ranks: int) -> "LatentCache":
        return self

    def __str__(self) -> str:
        return f"a latent of {self.latent} + {self.rotary}"


@dataclass(frozen=True, slots=True)
class StateCache:
    """A state of fixed size for each sequence, however long it is (state-space and linear-attention layers)."""

    elements_per_sequence: int
    window: int | None = None

    @property
    def planes(self) -> tuple[tuple[int, ...], ...]:
        return ()

    def of_rank(self, ranks: int) -> "StateCache":
        return replace(self, elements_per_sequence=-(-self.elements_per_sequence // ranks))

    def __str__(self) -> str:
        return f"a state of {self.elements_per_sequence:,}"


@dataclass(frozen=True, slots=True)
class CrossCache:
    """A key and a value for each head of every position that an encoder gave, written once for each sequence."""

    num_heads: int
    head_dim: int
    num_positions: int

    @property
    def elements_per_sequence(self) -> int:
        return 2 * self.num_heads * self.head_dim * self.num_positions

    def __str__(self) -> str:
        return f"{self.num_heads} heads × {self.head_dim} of {self.num_positions:,} encoded positions"


def padded_positions(cache: CrossCache) -> int:
    """Positions that a slot has room for: whole blocks of paged attention."""
    return -(-cache.num_positions // _BLOCK) * _BLOCK


CacheSpec = KeyValueCache | LatentCache | StateCache


def elements_per_token(cache: CacheSpec) -> int:
    """Numbers that one token leaves in one layer."""
    return sum(prod(plane) for plane in cache.planes)
