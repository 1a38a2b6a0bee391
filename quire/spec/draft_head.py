"""DraftHeadSpec: how a head that drafts for a larger model reads what that one made of its tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quire.spec.matrix import MatrixSpec
from quire.spec.norm import NormSpec
from quire.spec.tensor import TensorSpec

HeadKind = Literal["eagle", "eagle3", "mtp", "medusa"]
_KINDS: tuple[HeadKind, ...] = ("eagle", "eagle3", "mtp", "medusa")


def head_kind(method: str) -> HeadKind:
    """The head of a method of speculative decoding that has one."""
    return next(kind for kind in _KINDS if kind == method)


def has_head(method: str) -> bool:
    return method in _KINDS


@dataclass(frozen=True, slots=True)
class DraftHeadSpec:
    """What a head has beside a layer, a norm and a matrix of logits, which its ModelSpec describes.

    A head of the first three kinds computes a place of a sequence from two vectors: what the large model made of the
    token there (its feature), and the word that follows. What comes out stands for the feature of the next place.
    """

    kind: HeadKind
    fuse: MatrixSpec | None = None
    """EAGLE and MTP: from a word and a feature to what enters the layer; EAGLE-3: from what several layers of the large
    model made of a token to its feature."""
    word_norm: NormSpec | None = None
    feature_norm: NormSpec | None = None
    taps: tuple[int, ...] = ()
    """Layers of the large model whose inputs make a feature; empty: what comes out of its last norm is one."""
    owns_words: bool = False
    """Whether it has an embedding of its own; otherwise words are looked up in the large model's."""
    token_map: TensorSpec | None = None
    """[tokens it can say]: what is added to the number of each to make it that of the large model's vocabulary."""
    chains: tuple[tuple[MatrixSpec, ...], ...] = ()
    """Medusa: by place behind the next token, residual blocks and the matrix of logits behind them."""

    @property
    def borrows_words(self) -> bool:
        """Whether it looks words up in the large model's embedding; Medusa reads none."""
        return self.kind != "medusa" and not self.owns_words

    def matrices(self) -> Iterator[MatrixSpec]:
        if self.fuse is not None:
            yield self.fuse
        for chain in self.chains:
            yield from chain

    def norms(self) -> Iterator[NormSpec]:
        yield from (norm for norm in (self.word_norm, self.feature_norm) if norm is not None)

    def vectors(self) -> Iterator[TensorSpec]:
        if self.token_map is not None:
            yield self.token_map
