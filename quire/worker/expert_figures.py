"""ExpertFigures: what a worker knows of its model's experts: how often each was chosen, and whether it was there."""

import torch
from torch import Tensor, nn

from quire.core.expert_load import CacheCounts, ExpertLoad
from quire.layers.expert_cache import ExpertCache
from quire.layers.expert_counts import ExpertCounts
from quire.models.language_model import LanguageModel
from quire.worker.recorded import RecordedModel


class ExpertFigures:
    """Of a model without experts there is nothing to know, and nothing is spent on it."""

    def __init__(
        self, model: nn.Module, device: torch.device, computed: object, *, routers_count: bool, first_layer: int = 0
    ) -> None:
        """`computed` is what runs of the model: where that is the native core, it counts by itself. `first_layer` is
        the number of its first layer in the whole model.
        """
        self._recorded = recorded = computed if isinstance(computed, RecordedModel) else None
        self._counts: ExpertCounts | None = None
        if isinstance(model, LanguageModel) and recorded is None and routers_count:
            counts = ExpertCounts(model.layers, device, first_layer)
            self._counts = counts if counts.has_experts else None
        self._caches = [part for part in model.modules() if isinstance(part, ExpertCache)]

    @property
    def come_and_go(self) -> bool:
        """Whether some are in host memory, so that the host has its say within a step."""
        return bool(self._caches)

    def count_all(self) -> None:
        """Of what is computed from now on, count all tokens."""
        if self._counts is not None:
            self._counts.count_first(None)

    def count_real(self, rows: Tensor, spare: int, tokens_a_row: int) -> None:
        """Of what is computed from now on, leave out tokens of the spare row, with which graphs are filled up; those of
        one and two rows never are."""
        if self._counts is None:
            return
        if len(rows) <= 2:
            self._counts.count_first(None)
            return
        real = (rows < spare).sum(0, keepdim=True)
        self._counts.count_first(real if tokens_a_row == 1 else real * tokens_a_row)

    def load(self) -> ExpertLoad | None:
        """As far as it is known without waiting for the device; None: there are no experts, or none that count."""
        if self._recorded is not None:
            return self._recorded.expert_load()
        return None if self._counts is None else self._counts.load()

    def by_layer(self) -> dict[int, list[int]]:
        """As `ExpertCounts` has it; nothing where there are no experts, or none that count."""
        return {} if self._counts is None else self._counts.by_layer()

    def cache(self) -> CacheCounts | None:
        """How often experts were on the device that steps asked for; None: all are always there."""
        return sum((cache.counts for cache in self._caches), CacheCounts()) if self._caches else None
