"""How a child process gets its settings: as the first frame on its standard input. Little is imported for it."""

import struct
import sys
from typing import TypeVar

import msgspec

_LENGTH = struct.Struct("<I")
_T = TypeVar("_T")


def settings_frame(settings: object) -> bytes:
    """For whoever starts the child to write."""
    data = msgspec.msgpack.encode(settings)
    return _LENGTH.pack(len(data)) + data


def read_settings(kind: type[_T]) -> _T:
    """In the child: wait for its settings; it exits where whoever started it ends without any."""
    head = sys.stdin.buffer.read(_LENGTH.size)
    if not head:
        sys.exit(0)
    (size,) = _LENGTH.unpack(head)
    return msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=kind)
