"""CoreRecord: all that the native core needs to run a decoder again, kept beside its packed matrices. No torch.

It spares a later start the building of modules, and with it the import of torch, which takes longer than all the rest.
A record is of the code that made it: after a change to that code it is made anew.
"""

import hashlib
import logging
import os
import struct
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from quire.ops.cpu.layouts import MatrixForm
from quire.ops.cpu.packed_file import Untrusted, checked_size, opened
from quire.ops.cpu.recording import Recording

_log = logging.getLogger(__name__)
_MAGIC = b"quirerec"
_PREAMBLE = struct.Struct("<8s32s")
"""Magic, and the SHA-256 of all that follows."""
_MOST_BYTES = 256 << 20
_MADE_BY = ("layers", "models", "ops", "spec")
"""Rooms whose code decides what is recorded."""


class RecordedMatrix(msgspec.Struct, frozen=True):
    """A packed matrix by its name in the file of packed matrices."""

    name: str
    form: MatrixForm
    bias: int | None = None
    """A number among the weights."""


class RecordedRope(msgspec.Struct, frozen=True):
    """Angles that follow from a token's position alone."""

    frequencies: bytes
    """Float32."""
    factor: float


class CoreRecord(msgspec.Struct, frozen=True):
    """A decoder."""

    made_by: str
    layers: Recording
    head: Recording
    weights: list[bytes]
    """Float32 vectors: norms and biases."""
    matrices: list[RecordedMatrix]
    caches: list[int]
    """The layer of each cache that operations refer to."""
    groups: list[int]
    """The KV group of each layer."""
    ropes: list[RecordedRope]
    words: int
    """The matrix in which tokens are looked up."""
    word_scale: float | None
    hidden_size: int
    num_logits: int
    vocabulary: int
    """Tokens that requests may name."""
    logit_scale: float


@cache
def code_version() -> str:
    """Changes with the code that records models."""
    package = Path(__file__).parents[1]
    files = sorted(path for room in _MADE_BY for path in (package / room).rglob("*") if path.suffix in {".py", ".so"})
    facts = [(str(path), status.st_size, status.st_mtime_ns) for path in files for status in (path.stat(),)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def save_record(record: CoreRecord, path: Path) -> None:
    """Keep a record; where that is impossible, later starts take longer."""
    data = msgspec.msgpack.encode(record)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent)  # for this user alone
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_PREAMBLE.pack(_MAGIC, hashlib.sha256(data).digest()) + data)
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        _log.warning("the next start takes longer, since %s cannot be written: %s", path, error)


def load_record(path: Path) -> CoreRecord | None:
    """The record at `path`; None where there is none that today's code has made."""
    try:
        with opened(path) as file:
            if checked_size(os.fstat(file.fileno())) > _MOST_BYTES:
                raise Untrusted("it is longer than a record can be")
            record = _decode(file.read())
    except FileNotFoundError:
        return None
    except (OSError, Untrusted) as error:
        _log.warning("%s is not used and will be made anew: %s", path, error)
        return None
    return record if record.made_by == code_version() else None


def _decode(data: bytes) -> CoreRecord:
    if len(data) < _PREAMBLE.size:
        raise Untrusted("it is too short")
    magic, digest = _PREAMBLE.unpack_from(data)
    body = memoryview(data)[_PREAMBLE.size :]
    if magic != _MAGIC:
        raise Untrusted("it is no record of a model")
    if hashlib.sha256(body).digest() != digest:
        raise Untrusted("it is damaged")
    with suppress(msgspec.MsgspecError):
        return msgspec.msgpack.decode(body, type=CoreRecord)
    raise Untrusted("it has another form")
