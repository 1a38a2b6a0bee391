"""From a model to what its worker does with media: nothing, the whole, or in a pipeline a stage's part of it."""

import torch

from quire.config.resolved import Resolved
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.language_model import LanguageModel
from quire.spec.model import ModelSpec
from quire.worker.encoder_cache import EncoderCache
from quire.worker.media_encoder import MediaEncoder
from quire.worker.media_rows import MediaRows


def start_media(
    spec: ModelSpec, model: LanguageModel | FallbackDecoder, resolved: Resolved, device: torch.device
) -> MediaRows | None:
    """`spec` is that of the whole model, and `model` what this rank has of it: a later stage of a pipeline has no
    tower, but places tokens on axes, and lets images see themselves, as the first does. None: it reads texts alone."""
    of_tower = spec.audio if spec.vision is None else spec.vision
    if of_tower is None or not isinstance(model, LanguageModel):
        return None
    tower = model.audio if model.vision is None else model.vision
    encoder: MediaEncoder | None = None
    if tower is not None:
        cache = EncoderCache(device, *resolved.encoder_cache_tokens)
        encoder = MediaEncoder(tower, cache, resolved.limits.max_encoder_tokens)
    return MediaRows(of_tower, resolved.limits.max_num_seqs, spec.position_axes, device, encoder)
