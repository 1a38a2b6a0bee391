"""Media as Python programs hand them in: Pillow's images, arrays, bytes and paths, as `multi_modal_data` has them."""

import io
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.media import MediaKind
from quire.multimodal.reader import MediaFile

_KINDS: tuple[MediaKind, ...] = ("image", "video")
_PLAIN = ("RGB", "RGBA", "L", "LA", "P", "1")
"""Modes that a PNG keeps as they are."""


def files_of(data: object) -> list[MediaFile]:
    """`{"image": one or a list, "video": one or a list}`; what is None is not there."""
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
        several = [] if under is None else list(under) if isinstance(under, list | tuple) else [under]
        for place, each in enumerate(several):
            field = f"multi_modal_data.{kind}[{place}]"
            found.append((kind, _bytes(each, field), field))
    return found


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
