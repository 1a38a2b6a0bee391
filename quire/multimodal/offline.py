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
_SAMPLE_RATE = 16_000
"""Samples a second of an array that does not say so, as vLLM has it."""
_PLAIN = ("RGB", "RGBA", "L", "LA", "P", "1")
"""Modes that a PNG keeps as they are."""
_RATE, _MOST_RATE = 24.0, 1000.0
"""Frames a second of an array: what transformers takes where nothing is said, and what is believed."""


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
        several = [] if under is None else list(under) if _is_several(under, kind) else [under]
        for place, each in enumerate(several):
            field = f"multi_modal_data.{kind}[{place}]"
            stored = _stored(each, field)
            found.append((kind, _MADE_OF[kind](each, field) if stored is None else stored, field))
    return found


def _is_several(given: object, kind: MediaKind) -> bool:
    """A video may be a pair of its frames and what is known of them, and a sound one of its samples and their rate."""
    is_one = _is_rated(given) if kind == "audio" else _is_pair(given)
    return isinstance(given, list | tuple) and not is_one


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)


def _is_rated(given: Any) -> bool:
    """Whether it is samples and how many of them are a second."""
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int | float)


def _sound(given: Any, field: str) -> bytes:
    """Samples as a file: floats of one channel, or of several as [samples, channels]."""
    import numpy as np

    samples, rate = given if _is_rated(given) else (given, _SAMPLE_RATE)
    try:
        values = np.asarray(samples, dtype="<f4")
    except (TypeError, ValueError):
        values = np.zeros((0, 0, 0), "<f4")
    if values.ndim not in (1, 2):
        raise InvalidRequest(
            f"{field} is {type(given).__name__}; give bytes, a path, an array of floats at {_SAMPLE_RATE:,} samples a "
            "second, or a tuple of an array and its rate",
            field=field,
        )
    channels = 1 if values.ndim == 1 else values.shape[1]
    data = values.tobytes()
    form = struct.pack("<HHIIHH", 3, channels, int(rate), int(rate) * 4 * channels, 4 * channels, 32)
    inner = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


def _stored(given: Any, field: str) -> bytes | None:
    """What is in a file; None where it is given otherwise."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if not isinstance(given, str | PathLike):
        return None
    try:
        return Path(given).expanduser().read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{field} cannot be read: {error}", field=field) from None


def _frames(given: Any, field: str) -> bytes:
    """An array of frames as a file, with how many a second they are behind it."""
    import numpy as np

    about: Mapping[str, Any] = given[1] if _is_pair(given) else {}
    frames, rate = given[0] if _is_pair(given) else given, about.get("fps", _RATE)
    if not hasattr(frames, "__array_interface__") or not isinstance(rate, int | float) or not 0 < rate < _MOST_RATE:
        raise InvalidRequest(
            f"{field} is {type(frames).__name__} at {rate!r} frames a second; give bytes, a path, an array of uint8 "
            '[frames, height, width, 3], or such an array and {"fps": frames a second}',
            field=field,
        )
    stored = io.BytesIO()
    np.save(stored, np.asarray(frames), allow_pickle=False)
    return stored.getvalue() + str(float(rate)).encode()


def _picture(given: Any, field: str) -> bytes:
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


_MADE_OF = {"image": _picture, "video": _frames, "audio": _sound}
"""How what is no file becomes one."""
