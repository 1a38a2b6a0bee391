"""Embedder: token lists in, one vector each out, in batches of sequences of similar length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.core.pooling import Pooling
from quire.layers.pooling import normalize, pool
from quire.worker.whole_sequences import Body, Packed


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may hold; a sequence that is longer is a batch of its own."""

    max_num_seqs: int
    max_num_tokens: int


class Embedder:
    """Owns no state between calls."""

    def __init__(self, body: Body, limits: BatchLimits, pooling: Pooling) -> None:
        """`pooling` is what the model was made for, used where a call names none."""
        self._body = body
        self._limits = limits
        self._pooling: Pooling = pooling

    @torch.inference_mode()
    def embed(
        self, prompts: Sequence[Sequence[int]], pooling: Pooling | None = None, *, normalized: bool = True
    ) -> list[list[float]]:
        """Vectors in the order of the prompts, none of which may be empty."""
        vectors: dict[int, list[float]] = {}
        for places in batches([len(prompt) for prompt in prompts], self._limits):
            found = self._embed([prompts[place] for place in places], pooling or self._pooling, normalized)
            vectors.update(zip(places, found.tolist(), strict=True))
        return [vectors[place] for place in range(len(prompts))]

    def _embed(self, prompts: list[Sequence[int]], pooling: Pooling, normalized: bool) -> Tensor:
        packed = Packed(prompts, self._body.device)
        vectors = pool(self._body.hidden(packed), packed.starts, pooling)
        return normalize(vectors) if normalized else vectors


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
