"""Rotary position embeddings: the angles of every variant that checkpoints use.

Most variants are one set of frequencies. Two depend on how long the sequence is: `dynamic` and `longrope` use
other frequencies beyond the length they were trained on. As in the checkpoints' own code, a token's
frequencies follow from the longer of its sequence's length, as the batch gives it, and its position.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from quire.core.errors import CheckpointError
from quire.ops.functional import rope_angles

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """What a checkpoint's config says about positions."""

    head_dim: int
    theta: float
    max_position: int
    partial: float = 1.0
    """Share of each head that is rotated."""
    kind: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return int(self.head_dim * self.partial)

    @property
    def original_length(self) -> int:
        """The length beyond which `dynamic` and `longrope` change."""
        if self.kind == "dynamic":
            return self.max_position
        return int(self.scaling.get("original_max_position_embeddings") or self.max_position)


class Rope(nn.Module):
    """Angles for positions. Computed per token, so that no table grows with the context."""

    def __init__(self, config: RopeConfig, device: torch.device) -> None:
        super().__init__()
        if config.kind not in KINDS:
            raise CheckpointError(f"rope type {config.kind!r} is not known; quire has {', '.join(KINDS)}")
        self._config = config
        frequencies, self._attention_factor = _static_frequencies(config)
        self._frequencies = frequencies.to(device)
        self._long = _longrope_frequencies(config, "long_factor").to(device) if config.kind == "longrope" else None

    @property
    def num_angles(self) -> int:
        """Pairs of a head that are turned."""
        return self._config.size // 2

    def forward(self, positions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, each [tokens, size / 2], in float32."""
        frequencies: Tensor = self._frequencies
        if self._config.kind in {"dynamic", "longrope"}:
            frequencies = self._frequencies_by_length(torch.maximum(lengths, positions + 1))
        return rope_angles(positions, frequencies, self._attention_factor)

    def _frequencies_by_length(self, lengths: Tensor) -> Tensor:
        config = self._config
        beyond = (lengths > config.original_length).unsqueeze(1)
        if self._long is not None:
            return torch.where(beyond, self._long, self._frequencies)
        factor, size = float(config.scaling["factor"]), config.size
        stretch = (factor * lengths.clamp(min=config.original_length) / config.original_length) - (factor - 1)
        base = config.theta * stretch.double() ** (size / (size - 2))
        exponents = torch.arange(0, size, 2, device=lengths.device, dtype=torch.float64) / size
        return (1.0 / base.unsqueeze(1) ** exponents).float()


def read_rope(config: Mapping[str, Any], head_dim: int, *, theta: float = 10000.0) -> RopeConfig:
    """From a HF config's `rope_theta`, `rope_scaling` or `rope_parameters`."""
    scaling = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind == "su":  # the first name of longrope
        kind = "longrope"
    original = config.get("original_max_position_embeddings")
    if original is not None:
        scaling.setdefault("original_max_position_embeddings", original)
    return RopeConfig(
        head_dim=head_dim,
        theta=float(scaling.get("rope_theta") or config.get("rope_theta") or theta),
        max_position=int(config["max_position_embeddings"]),
        partial=float(scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0),
        kind=kind,
        scaling=scaling,
    )


def _static_frequencies(config: RopeConfig) -> tuple[Tensor, float]:
    """Frequencies [size / 2] of short sequences, and what attention is scaled by."""
    plain = _plain(config.theta, config.size)
    if config.kind == "linear":
        return plain / float(config.scaling["factor"]), 1.0
    if config.kind == "llama3":
        return _llama3(plain, config.scaling), 1.0
    if config.kind == "yarn":
        return _yarn(plain, config)
    if config.kind == "longrope":
        return _longrope_frequencies(config, "short_factor"), _longrope_attention(config)
    return plain, 1.0


def _plain(theta: float, size: int) -> Tensor:
    return (1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.int64).float() / size)).float()


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Long waves are stretched, short ones kept, those between blended."""
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    original = float(scaling["original_max_position_embeddings"])
    turns = original * plain / (2 * math.pi)  # full turns within the original context
    blend = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return plain * blend + plain / factor * (1 - blend)


def _yarn(plain: Tensor, config: RopeConfig) -> tuple[Tensor, float]:
    """Frequencies that turn often within the original context are kept, those that turn rarely are stretched."""
    scaling, size = config.scaling, config.size
    original = config.original_length
    factor = float(scaling.get("factor") or config.max_position / original)

    def dimension(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    low = dimension(float(scaling.get("beta_fast") or 32))
    high = dimension(float(scaling.get("beta_slow") or 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = ((torch.arange(size // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0.0, 1.0)
    return plain / factor * ramp + plain * (1 - ramp), _yarn_attention(scaling, factor)


def _yarn_attention(scaling: Mapping[str, Any], factor: float) -> float:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    weight, all_dimensions = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if weight and all_dimensions:
        return magnitude(float(weight)) / magnitude(float(all_dimensions))
    return magnitude(1.0)


def _longrope_frequencies(config: RopeConfig, name: str) -> Tensor:
    factors = torch.tensor(config.scaling[name], dtype=torch.float32)
    exponents = torch.arange(0, config.size, 2, dtype=torch.int64).float() / config.size
    if factors.shape != exponents.shape:
        raise CheckpointError(f"rope {name} has {len(factors)} entries; a head of {config.size} needs {len(exponents)}")
    return 1.0 / (factors * config.theta**exponents)


def _longrope_attention(config: RopeConfig) -> float:
    given = config.scaling.get("attention_factor")
    if given is not None:
        return float(given)
    factor = config.max_position / config.original_length
    return math.sqrt(1 + math.log(factor) / math.log(config.original_length)) if factor > 1 else 1.0
