"""ExpertCopies: copies of experts that come to one rank while it serves, where experts are spread over ranks.

What is to come is read from the checkpoint in a thread of its own, beside the steps. It takes its place between two
steps, which the plan of the second says, so that all ranks change at once.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext

import torch

from quire.core.plan import LayerCopies
from quire.layers.experts import Experts
from quire.spec.expert_copies import HeldExperts

ReadExperts = Callable[[int, Sequence[int]], Experts]
"""Of a layer by its number in the whole model, these experts alone, in host memory."""


class ExpertCopies:
    """Of one rank's layers, by their numbers in the whole model."""

    def __init__(self, layers: Mapping[int, Experts], read: ReadExperts, device: torch.device) -> None:
        self._layers = layers
        self._read = read
        self._device = device
        self._reader = ThreadPoolExecutor(1, "quire-experts")
        self._fetched: dict[int, tuple[LayerCopies, Experts | None]] = {}
        """By layer, until they take their places: a step may come after the next layer is asked for."""

    def fetch(self, asked: LayerCopies) -> "Future[None]":
        """Begin to read what this rank will have of a layer and has not. What was read of the layer before, and has
        taken no place, is forgotten."""
        return self._reader.submit(self._fetch, asked)

    @torch.inference_mode()
    def place(self, asked: LayerCopies) -> None:
        """From now on they are computed with: they have been fetched."""
        experts = self._layers.get(asked.layer)
        if experts is None:  # another stage's
            return
        fetched, incoming = self._fetched.pop(asked.layer)
        assert fetched == asked, f"fetched was {fetched}"
        experts.take_copies(_held(experts, asked), incoming)

    def close(self) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, asked: LayerCopies) -> None:
        self._fetched.pop(asked.layer, None)
        experts = self._layers.get(asked.layer)
        if experts is None:
            return
        assert experts.places is not None, "experts are spread"
        coming = [expert for expert, _ in experts.places.coming(_held(experts, asked))]
        # pinned memory belongs to a device's context, and a thread's is that of the first unless it says otherwise
        with nullcontext() if self._device.type != "cuda" else torch.cuda.device(self._device):
            incoming = self._read(asked.layer, coming) if coming else None
        self._fetched[asked.layer] = (asked, incoming)


def _held(experts: Experts, asked: LayerCopies) -> HeldExperts:
    assert experts.places is not None, "experts are spread"
    now = experts.places.held
    return HeldExperts(now.rank, now.num_experts, asked.copies)
