"""SoundProcessor: what becomes of a sound on its way into a prompt, by the checkpoint's files. One row a family."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.multimodal.settings import Settings, read_json
from quire.multimodal.spectrogram import HOP, SAMPLING_RATE

_AHEAD = 2
"""Frames behind the last one that its position sees, through two convolutions."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a spectrogram that is encoded by itself."""

    frames: int
    positions: int
    """Of the encoder, that are kept."""
    tokens: int


@dataclass(frozen=True, slots=True)
class SoundProcessor:
    """Of one model."""

    num_bins: int
    fill: int
    """Samples to a multiple of which a sound is filled up with silence."""
    most_seconds: float | None
    """The longest that the model reads; None: windows follow one another."""
    windows: Callable[[int], list[Window]]
    """By the samples of a sound."""
    token: int | None
    """The token that marks a sound, and is its placeholder token; None: the first of `marks` that is one token."""
    marks: tuple[str, ...]
    """How a prompt says in words that a sound stands here; where there are several, the first that is one token."""
    written: str | None = None
    """What checkpoints' own prompts say, where that is no token."""


def read_sound_processor(path: Path) -> SoundProcessor | None:
    """Of the model in a folder; None where it hears nothing, or quire does not know how it does."""
    config = read_json(path / "config.json") if path.is_dir() else {}
    make = _FAMILIES.get(str(config.get("model_type", "")))
    if make is None or not isinstance(config.get("audio_config"), dict):
        return None
    return make(config, Settings(config["audio_config"], "the config of the audio tower"))


def _qwen2_audio(config: Mapping[str, Any], tower: Settings) -> SoundProcessor:
    """One window of 30 seconds, of whose positions those of the sound are kept; each two become a token."""
    tower = tower.over({"num_mel_bins": 128, "max_source_positions": 1500})
    most = 2 * tower.number("max_source_positions")

    def windows(samples: int) -> list[Window]:
        frames = math.ceil(samples / HOP)
        positions = (frames - 1) // 2 + 1
        return [Window(min(frames + _AHEAD, most), positions, (positions - 2) // 2 + 1)]

    token = config.get("audio_token_index", config.get("audio_token_id"))
    if not isinstance(token, int):
        raise CheckpointError("the model's config.json does not give audio_token_index, the token of sound.")
    return SoundProcessor(
        num_bins=tower.number("num_mel_bins"),
        fill=most * HOP,
        most_seconds=most * HOP / SAMPLING_RATE,
        windows=windows,
        token=token,
        marks=("<|audio_bos|><|AUDIO|><|audio_eos|>\n",),
    )


def _ultravox(config: Mapping[str, Any], tower: Settings) -> SoundProcessor:
    """Windows of up to 30 seconds, as many as a sound takes; so many positions become a token."""
    tower = tower.over({"num_mel_bins": 128, "max_source_positions": 1500})
    most, stacked = 2 * tower.number("max_source_positions"), int(config.get("stack_factor") or 8)

    def windows(samples: int) -> list[Window]:
        left, found = math.ceil(samples / HOP), []
        while left > 0:
            frames = min(left, most)
            found.append(Window(frames, (frames - 1) // 2 + 1, math.ceil(frames / (2 * stacked))))
            left -= frames
        return found

    marks = ("<|audio|>", "<|reserved_special_token_0|>", "<unused0>", "<|fim_pad|>", "[control_8]")
    return SoundProcessor(tower.number("num_mel_bins"), HOP, None, windows, None, marks, written="<|audio|>")


_FAMILIES: dict[str, Callable[[Mapping[str, Any], Settings], SoundProcessor]] = {
    "qwen2_audio": _qwen2_audio,
    "ultravox": _ultravox,
}
