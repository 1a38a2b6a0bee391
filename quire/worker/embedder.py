"""Embedder: token lists in, vectors or scores of labels out, in batches of sequences of similar length."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from quire.core.pooling import Pooling
from quire.layers.pooling import normalize, pool
from quire.worker.whole_sequences import Packed, WholeSequences


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may hold; a sequence that is longer is a batch of its own."""

    max_num_seqs: int
    max_num_tokens: int


class Embedder:
    """Owns no state between calls."""

    def __init__(self, body: WholeSequences, limits: BatchLimits, pooling: Pooling) -> None:
        """`pooling` is what the model was made for, used where a call names none."""
        self._body = body
        self._limits = limits
        self._pooling: Pooling = pooling

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[Sequence[int]], pooling: Pooling | None = None, *, normalized: bool = True
    ) -> list[list[float]]:
        """Vectors in the order of the prompts, none of which may be empty."""

        def embedded(packed: Packed) -> Tensor:
            vectors = pool(self._body.hidden(packed), packed.starts, pooling or self._pooling)
            return normalize(vectors) if normalized else vectors

        return self._in_batches(prompts, None, embedded)

    @torch.inference_mode()
    def embed_tokens(self, prompts: Sequence[Sequence[int]], *, normalized: bool = True) -> list[list[list[float]]]:
        """For every prompt the vectors of its tokens."""

        def embedded(packed: Packed) -> Iterable[Tensor]:
            hidden = self._body.hidden(packed).float()
            vectors = normalize(hidden) if normalized else hidden
            return [vectors[start:end] for start, end in pairwise(accumulate(packed.lengths, initial=0))]

        return self._in_batches(prompts, None, embedded)

    @torch.inference_mode()
    def classify(
        self, prompts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> list[list[float]]:
        """The raw score of every label; `types` tells the texts of pairs apart."""
        return self._in_batches(prompts, types, self._body.classify)

    def _in_batches(
        self,
        prompts: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None,
        compute: Callable[[Packed], Iterable[Tensor]],
    ) -> list[Any]:
        """What `compute` gives for each prompt of a batch, as plain lists in the order of the prompts."""
        found: dict[int, Any] = {}
        for places in batches([len(prompt) for prompt in prompts], self._limits):
            of_batch = None if types is None else [types[place] for place in places]
            packed = Packed([prompts[place] for place in places], self._body.device, of_batch)
            found.update(zip(places, (each.tolist() for each in compute(packed)), strict=True))
        return [found[place] for place in range(len(prompts))]


def batches(lengths: Sequence[int], limits: BatchLimits) -> Iterator[list[int]]:
    """Places of sequences by batch, the longest first, so that a batch too large for the device fails at once."""
    batch: list[int] = []
    tokens = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        is_full = len(batch) == limits.max_num_seqs or tokens + lengths[place] > limits.max_num_tokens
        if batch and is_full:
            yield batch
            batch, tokens = [], 0
        batch.append(place)
        tokens += lengths[place]
    if batch:
        yield batch
