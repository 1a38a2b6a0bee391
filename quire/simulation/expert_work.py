"""ExpertWork: what the experts of a model read and compute in a step, on the rank that has most to do.

Tokens choose their experts evenly and each for itself. Where every rank has a part of every expert, all ranks have
equally much to do, but a part may be narrower than a tile of a kernel, which computes the tile whole. Where ranks have
whole experts, chance gives one of them more than the others, and these wait for it. Where nothing but experts is
spread, a rank has all other weights beside its experts.
"""

from dataclasses import dataclass
from math import ceil, log, sqrt

from quire.config.facts import ModelFacts
from quire.spec.experts import ExpertsSpec

_TILE = 64
"""Columns of an expert that a kernel computes at once."""


@dataclass(frozen=True, slots=True)
class ExpertWork:
    """As plain numbers that travel to other processes."""

    share: float
    """Of all weights, those of experts."""
    chosen_share: float
    """Of the experts, those of one token."""
    computed_share: float
    """Of the weights that one token is multiplied by, those of experts."""
    num_experts: int
    size: int
    """Columns of one expert."""
    num_layers: int = 0
    """That have experts."""

    @classmethod
    def of(cls, model: ModelFacts) -> "ExpertWork | None":
        with_experts = [layer.mlp for layer in model.spec.layers if isinstance(layer.mlp, ExpertsSpec)]
        if not with_experts:
            return None
        total = sum(mlp.num_elements for mlp in with_experts)
        chosen = sum(mlp.num_elements * mlp.touched(1) for mlp in with_experts)
        first = with_experts[0]
        return cls(
            total / model.num_parameters,
            chosen / total,
            chosen / model.num_active_parameters,
            first.num_experts,
            first.size,
            len(with_experts),
        )

    def unread_share(self, num_tokens: int, ranks: int, *, whole: bool) -> float:
        """Of a rank's weights, those of experts that none of so many tokens chooses."""
        idle = (1 - self.chosen_share) ** num_tokens
        if whole and ranks > 1:
            each = self.num_experts / ranks
            idle = max(0.0, idle - sqrt(2 * log(ranks) * idle * (1 - idle) / each))
        return self.share * idle

    def share_if_alone(self, ranks: int) -> float:
        """What share of a rank's weights experts are where nothing else is spread, in what it is of the model's."""
        return 1 / (ranks * (1 - self.share) + self.share)

    def operations(self, num_tokens: int, ranks: int, *, whole: bool) -> float:
        """How many times as much as an even part of all operations a rank has, with those of everything else."""
        if ranks == 1:
            return 1.0
        if whole:
            even = num_tokens * self.chosen_share * self.num_experts / ranks
            more = min(float(ranks), 1 + sqrt(2 * log(ranks) / even))
        else:
            part = self.size / ranks
            more = ceil(part / _TILE) * _TILE / part
        return 1 + self.computed_share * (more - 1)
