"""Media as Python programs hand them in: Pillow's images, arrays, bytes and paths, as `multi_modal_data` has them."""

import io
import struct
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.media import MediaKind
from quire.multimodal.reader import MediaFile

_KINDS: tuple[MediaKind, ...] = ("image", "video", "audio")
_RATE = 16_000
"""Samples a second of an array that does not say so, as vLLM has it."""
_PLAIN = ("RGB", "RGBA", "L", "LA", "P", "1")
"""Modes that a PNG keeps as they are."""


def files_of(data: object) -> list[MediaFile]:
    """`{"image": one or a list, "audio": one or a list, …}`; what is None is not there."""
    if data is None:
        return []
    if not isinstance(data, Mapping) or set(data) - set(_KINDS):
        given = ", ".join(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
        raise InvalidRequest(
            f"multi_modal_data has {given}; it maps {' and '.join(_KINDS)} to one or a list each",
            field="multi_modal_data",
        )
    found: list[MediaFile] = []
    for kind in _KINDS:
        under: Any = data.get(kind)
        is_one = not isinstance(under, list | tuple) or (kind == "audio" and _is_rated(under))
        several = [] if under is None else [under] if is_one else list(under)
        for place, each in enumerate(several):
            field = f"multi_modal_data.{kind}[{place}]"
            found.append((kind, (_sound if kind == "audio" else _bytes)(each, field), field))
    return found


def _is_rated(given: Any) -> bool:
    """Whether it is samples and how many of them are a second."""
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int | float)


def _sound(given: Any, field: str) -> bytes:
    """A file, or samples as one: floats of one channel, or of several as [samples, channels]."""
    if isinstance(given, bytes | bytearray | memoryview | str | PathLike):
        return _bytes(given, field)
    import numpy as np

    samples, rate = given if _is_rated(given) else (given, _RATE)
    try:
        values = np.asarray(samples, dtype="<f4")
    except (TypeError, ValueError):
        values = np.zeros((0, 0, 0), "<f4")
    if values.ndim not in (1, 2):
        raise InvalidRequest(
            f"{field} is {type(given).__name__}; give bytes, a path, an array of floats at {_RATE:,} samples a second, "
            "or a tuple of an array and its rate",
            field=field,
        )
    channels = 1 if values.ndim == 1 else values.shape[1]
    data = values.tobytes()
    form = struct.pack("<HHIIHH", 3, channels, int(rate), int(rate) * 4 * channels, 4 * channels, 32)
    inner = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


def _bytes(given: Any, field: str) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if isinstance(given, str | PathLike):
        try:
            return Path(given).expanduser().read_bytes()
        except OSError as error:
            raise InvalidRequest(f"{field} cannot be read: {error}", field=field) from None
    from PIL import Image

    if hasattr(given, "__array_interface__") and not isinstance(given, Image.Image):
        try:
            given = Image.fromarray(given)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"{field} is an array that is no picture: {error}", field=field) from None
    if not isinstance(given, Image.Image):
        raise InvalidRequest(
            f"{field} is {type(given).__name__}; give bytes, a path, a Pillow image or an array", field=field
        )
    image = given if given.mode in _PLAIN else given.convert("RGB")
    stored = io.BytesIO()
    image.save(stored, "PNG", compress_level=1)
    return stored.getvalue()
