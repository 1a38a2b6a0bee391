"""ExpertCounts: on the device, how many tokens chose each expert of each layer; nobody waits for the numbers."""

import numpy as np
import torch
from torch import Tensor, nn

from quire.core.expert_load import ExpertLoad
from quire.layers.router import Router
from quire.ops.upload import towards_host


class ExpertCounts:
    """Routers count as they route, in the same kernel. Counts of 32 bits wrap around; who reads them sees no trace of
    that unless two billion tokens came in between.
    """

    def __init__(self, layers: nn.ModuleList, device: torch.device, first_layer: int = 0) -> None:
        """`first_layer` is the number of the first of them in the whole model."""
        self._routers = {
            index: part
            for index, layer in enumerate(layers, first_layer)
            for part in layer.modules()
            if isinstance(part, Router)
        }
        sizes = [router.num_experts for router in self._routers.values()]
        self._counts = torch.zeros((len(sizes), max(sizes, default=0)), dtype=torch.int32, device=device)
        for router, counts in zip(self._routers.values(), self._counts, strict=True):
            router.counts = counts
        self._total = np.zeros(self._counts.shape, np.int64)
        self._last = np.zeros(self._counts.shape, np.int32)
        self._copy: tuple[Tensor, torch.cuda.Event] | None = None
        """On its way to the host, and when it has arrived."""

    @property
    def has_experts(self) -> bool:
        return bool(self._routers)

    def count_first(self, count: Tensor | None) -> None:
        """Of what is computed from now on, count the first tokens alone: int64 [1], on the device; None: all."""
        for router in self._routers.values():
            router.counted = count

    def load(self) -> ExpertLoad:
        """Since the start. A GPU's is that of an earlier call: a copy sets out now, and is read when it has come."""
        if not self._counts.is_cuda:
            self._take(self._counts)
        elif self._copy is None or self._copy[1].query():  # type: ignore[no-untyped-call]
            if self._copy is not None:
                self._take(self._copy[0])
            self._copy = (towards_host(self._counts), torch.cuda.Event())  # type: ignore[no-untyped-call]
            self._copy[1].record()
        return ExpertLoad(tuple(self._routers), self._total.astype(np.float64))

    def by_layer(self) -> dict[int, list[int]]:
        """By layer, how many tokens have chosen each expert, as the device has counted: in 32 bits, which wrap around.
        Waits for it."""
        rows = self._counts.tolist()
        return {
            layer: row[: router.num_experts] for (layer, router), row in zip(self._routers.items(), rows, strict=True)
        }

    def _take(self, counts: Tensor) -> None:
        new = counts.numpy().copy()
        self._total += (new - self._last).astype(np.int64)  # which wraps around as the counts do
        self._last = new
