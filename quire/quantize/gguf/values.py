"""Metadata values as a GGUF file holds them: a type, then the value, all little-endian."""

import struct
from collections.abc import Sequence
from typing import Any

_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


def text(value: str) -> bytes:
    data = value.encode("utf-8", errors="surrogatepass")
    return struct.pack("<Q", len(data)) + data


def value_bytes(value: Any) -> bytes:
    """Of a truth value, a whole number, a number, a text, or a list of whole numbers or texts."""
    match value:
        case bool():
            return struct.pack("<IB", _BOOL, value)
        case int():
            return struct.pack("<II", _U32, value)
        case float():
            return struct.pack("<If", _F32, value)
        case str():
            return struct.pack("<I", _STRING) + text(value)
    return struct.pack("<I", _ARRAY) + _array(value)


def _array(values: Sequence[Any]) -> bytes:
    if values and isinstance(values[0], int):
        return struct.pack(f"<IQ{len(values)}i", _I32, len(values), *values)
    return struct.pack("<IQ", _STRING, len(values)) + b"".join(map(text, values))
