"""Targets that decode media, as the processes do that are kept for it."""

import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from quire.multimodal.audio_child import answer_frame as sound_answer
from quire.multimodal.media_child import answer_frame as picture_answer
from quire.multimodal.recipes import Fixed, Job, Limits
from tests.fuzz.target import Target
from tests.multimodal import sounds as sounds_of


def images(folder: Path) -> Target:
    pixels = np.arange(24 * 20 * 3, dtype=np.uint8).reshape(24, 20, 3)
    seeds = [_encoded(Image.fromarray(pixels), form) for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP")]
    recipe, limits = Fixed(resize=(8, 8), crop=None, filter=3), Limits(pixels=1 << 20)

    def take(data: bytes) -> None:
        picture_answer(msgspec.msgpack.encode(Job(data, recipe, limits)))

    return Target("images", seeds, take, refusals=())


def sounds(folder: Path) -> Target:
    short: Any = sounds_of.tone(0.02)  # type: ignore[no-untyped-call]
    kinds: list[Any] = [{}, {"width": 3, "channels": 2}, {"width": 1}]
    seeds = [sounds_of.wav(short, **kind) for kind in kinds]  # type: ignore[no-untyped-call]

    def take(data: bytes) -> None:
        sound_answer(msgspec.msgpack.encode({"data": data, "num_bins": 80, "most_seconds": 30.0, "fill": 0}))

    return Target("sounds", seeds, take, refusals=())


def _encoded(image: Image.Image, form: str) -> bytes:
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()
