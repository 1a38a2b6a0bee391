"""What media take of a device beside their tower's weights: the largest encoding, and embeddings that are kept."""

import os
from dataclasses import dataclass

from quire.config.dtypes import dtype_bytes
from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.resolved import ENCODED_AT_ONCE, Choice
from quire.core.errors import ConfigError

_HOST_TIMES = 8
"""Embeddings that host memory keeps for each that the device keeps."""
_FLOAT32 = 4
_FRAMES_A_POSITION = 2
_COPIES_OF_PIXELS = 3
"""Of a patch's numbers in float32: as they came, cut into patches, and in the order of the tower."""


@dataclass(frozen=True, slots=True)
class VisionRoom:
    """Of one device."""

    device_tokens: int
    host_tokens: int
    num_bytes: int


def decide_vision(
    asked: EngineConfig, model: ModelFacts, dtype: str, choices: list[Choice], step_tokens: int
) -> VisionRoom:
    """Nothing for a model that reads texts alone; `step_tokens` are the most of a step."""
    spec, audio = model.spec.vision, model.spec.audio
    if spec is None and model.spec.joint is not None:  # nothing is kept of its images
        spec = model.spec.joint.tower
    if spec is None and audio is None:
        return VisionRoom(0, 0, 0)
    if model.mmproj is not None:
        reason = "asked for" if asked.model.mmproj is not None else "lies beside the model; --mmproj none leaves it out"
        choices.append(Choice("mmproj", os.path.basename(model.mmproj), reason))
    longest_chunk = asked.scheduler.long_prefill_token_threshold or step_tokens
    if spec is not None and spec.seen_whole > min(step_tokens, longest_chunk):
        raise ConfigError(
            f"{model.name} computes the {spec.seen_whole} tokens of an image in one step, and a step may have "
            f"{min(step_tokens, longest_chunk)} of a prompt; raise --max-num-batched-tokens or "
            "--long-prefill-token-threshold."
        )
    tokens, item = asked.multimodal.encoder_cache_tokens, dtype_bytes(dtype)
    working = 0
    if spec is not None:
        width = max(sum(layer.widest()) for layer in spec.layers) + 2 * spec.patches.rows
        patch = width * item + _COPIES_OF_PIXELS * _FLOAT32 * spec.patches.columns
        working = ENCODED_AT_ONCE * spec.projector.merge**2 * patch
    if audio is not None:
        frames = _FRAMES_A_POSITION * audio.encoder.num_mel_bins * _FLOAT32
        working = ENCODED_AT_ONCE * audio.positions_each * (audio.encoder.widest * item + frames)
    kept = tokens * model.spec.hidden_size * item * (1 if spec is None else len(spec.projectors))
    choices.append(Choice("encoder_cache_tokens", f"{tokens:,}", f"{(working + kept) >> 20:,} MiB for media"))
    return VisionRoom(tokens, _HOST_TIMES * tokens, working + kept)
