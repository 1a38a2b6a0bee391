"""Rotary position embeddings: the angles of every variant that checkpoints use.

Most variants are one set of frequencies. Two depend on how long the sequence is: `dynamic` and `longrope` use
other frequencies beyond the length they were trained on. As in the checkpoints' own code, a token's
frequencies follow from the longer of its sequence's length, as the batch gives it, and its position.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from quire.core.errors import CheckpointError
from quire.ops.functional import rope_angles
from quire.spec.rope import RopeSpec

_BY_LENGTH = frozenset({"dynamic", "longrope"})


class Rope(nn.Module):
    """Angles for positions. Computed per token, so that no table grows with the context."""

    def __init__(self, config: RopeSpec, device: torch.device) -> None:
        super().__init__()
        self._config = config
        frequencies, self._attention_factor = _static_frequencies(config)
        self._frequencies = frequencies.to(device)
        self._long = _longrope_frequencies(config, "long_factor").to(device) if config.kind == "longrope" else None
        self._long_attention = _long_attention(config)

    @property
    def num_angles(self) -> int:
        """Pairs of a head that are turned."""
        return self._config.size // 2

    @property
    def fixed(self) -> tuple[Tensor, float] | None:
        """Frequencies and the factor of angles, where these depend on nothing but positions; else None."""
        return None if self._config.kind in _BY_LENGTH else (self._frequencies, self._attention_factor)

    def forward(self, positions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, each [tokens, size / 2], in float32. `positions`: [tokens], or [axes, tokens]."""
        if positions.dim() == 2:
            return self._by_axis(positions, lengths)
        frequencies: Tensor = self._frequencies
        if self._config.kind not in _BY_LENGTH:
            return rope_angles(positions, frequencies, self._attention_factor)
        lengths = torch.maximum(lengths, positions + 1)
        cos, sin = rope_angles(positions, self._frequencies_by_length(lengths), self._attention_factor)
        if self._long_attention in (None, self._attention_factor):
            return cos, sin
        beyond = (lengths > self._config.original_length).unsqueeze(1)
        more = torch.where(beyond, self._long_attention / self._attention_factor, 1.0)
        return cos * more, sin * more

    def _by_axis(self, positions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Each section of a head's pairs follows an axis of its own (M-RoPE), or the axes take turns."""
        axes, sections = [self(axis, lengths) for axis in positions], list(self._config.sections)
        if self._config.interleaved:
            return _taking_turns(axes, sections)
        cos, sin = (
            torch.cat([angles[kind].split(sections, dim=1)[axis] for axis, angles in enumerate(axes)], dim=1)
            for kind in (0, 1)
        )
        return cos, sin

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


def _taking_turns(axes: list[tuple[Tensor, Tensor]], sections: list[int]) -> tuple[Tensor, Tensor]:
    """Every third pair follows height and every third width, as far as their sections reach; all others time."""
    cos, sin = (angles.clone() for angles in axes[0])
    for axis in range(1, len(axes)):
        turns = slice(axis, sections[axis] * len(axes), len(axes))
        cos[:, turns], sin[:, turns] = axes[axis][0][:, turns], axes[axis][1][:, turns]
    return cos, sin


def stretch_factors(config: RopeSpec) -> Tensor:
    """What plain frequencies are divided by [size / 2], where a checkpoint says so frequency by frequency."""
    return _plain(config.theta, config.size) / _static_frequencies(config)[0]


def _static_frequencies(config: RopeSpec) -> tuple[Tensor, float]:
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


def _yarn(plain: Tensor, config: RopeSpec) -> tuple[Tensor, float]:
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


def _longrope_frequencies(config: RopeSpec, name: str) -> Tensor:
    factors = torch.tensor(config.scaling[name], dtype=torch.float32)
    exponents = torch.arange(0, config.size, 2, dtype=torch.int64).float() / config.size
    if factors.shape != exponents.shape:
        raise CheckpointError(f"rope {name} has {len(factors)} entries; a head of {config.size} needs {len(exponents)}")
    return 1.0 / (factors * config.theta**exponents)


def _long_attention(config: RopeSpec) -> float | None:
    """What attention is scaled by in long sequences, where a checkpoint says so (Phi-3.5-MoE)."""
    given = config.scaling.get("long_mscale") if config.kind == "longrope" else None
    return None if given is None else float(given)


def _longrope_attention(config: RopeSpec) -> float:
    given = config.scaling.get("short_mscale") or config.scaling.get("attention_factor")
    if given is not None:
        return float(given)
    factor = config.max_position / config.original_length
    return math.sqrt(1 + math.log(factor) / math.log(config.original_length)) if factor > 1 else 1.0
