"""A file of packed matrices: how it is written, and what is checked before a byte of it is used.

A preamble of one page, the matrices, then a table that says where each lies. The file is named as what it is only
when it is whole, and is never changed after that; which files there are is for packed_cache.py to know.
"""

import fcntl
import hashlib
import io
import os
import stat
import struct
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import ACCESS_COPY, ALLOCATIONGRANULARITY, mmap
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from quire.ops.cpu.layouts import MatrixForm
from quire.ops.host_pages import give_back

UNFINISHED = ".partial"

Bytes = NDArray[np.uint8]

_MAGIC = b"quirepak"
_VERSION = 1
_PREAMBLE = struct.Struct("<8sIQQ32s")
"""Magic, version of this file's own format, where the table begins, its bytes, and its SHA-256."""
_DATA_START = 4096
_ALIGNMENT = 64
_MOST_TABLE_BYTES = 64 << 20
_SEGMENT = -(-(1 << 30) // ALLOCATIONGRANULARITY) * ALLOCATIONGRANULARITY
"""A new file is mapped in pieces of this size: each holds a file descriptor, of which a process has about 1000."""


class Untrusted(Exception):
    """A file that must not be used, and why."""


class _Entry(msgspec.Struct, frozen=True):
    offset: int
    form: MatrixForm


class _Table(msgspec.Struct, frozen=True):
    key: str
    matrices: dict[str, _Entry]


class PackedFile:
    """A whole file, mapped: all processes that use it share its pages. It may be deleted meanwhile."""

    def __init__(self, path: Path, key: str) -> None:
        """Raises Untrusted for everything that is not a file we wrote for `key`, and FileNotFoundError for none."""
        try:
            with opened(path) as file:
                size = checked_size(os.fstat(file.fileno()))
                self._matrices = _read_table(file.fileno(), size, key)
                mapping = mmap(file.fileno(), size, access=ACCESS_COPY)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:  # ValueError: it has become shorter
            raise Untrusted(str(error)) from None
        # private and writable, since torch takes no other memory without a warning; nothing writes to it
        self._bytes: Bytes = np.frombuffer(mapping, dtype=np.uint8)

    def give_back_pages(self) -> None:
        """Take no memory until a matrix is used again; the system may keep what it has read for others."""
        give_back(self._bytes.ctypes.data, self._bytes.nbytes)

    def matrix(self, name: str, form: MatrixForm) -> Bytes | None:
        """The bytes of a matrix, when the file has one of this name and form."""
        entry = self._matrices.get(name)
        if entry is None or entry.form != form:
            return None
        return self._bytes[entry.offset : entry.offset + form.size]


@dataclass(slots=True)
class _Segment:
    start: int
    end: int
    data: Bytes


class PackedFileWriter:
    """A file that comes into being, one matrix after the other, under a temporary name. Threads may share it.

    Bytes reach it by writing, not through its mapping: a full disk is then an error, and not a signal that kills.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._descriptor, self._path = _create_locked(folder)
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._matrices: dict[str, _Entry] = {}
        self._end = _DATA_START
        self._segment = _Segment(0, 0, np.empty(0, dtype=np.uint8))
        self._mapped: list[Bytes] = []

    def give_back_pages(self) -> None:
        """Of what was handed out, once it is written: it is read from the file again when it is used."""
        for mapped in self._mapped:
            give_back(mapped.ctypes.data, mapped.nbytes)

    def append(self, name: str, form: MatrixForm, data: Bytes) -> Bytes:
        """Write a matrix, and return its bytes as they lie in the file. An OSError means that the file is done for."""
        with self._lock:
            offset = self._place(form.size)
            _write(self._descriptor, data.data, offset)
            self._matrices[name] = _Entry(offset, form)
            self._end = offset + form.size
            start = offset - self._segment.start
            return self._segment.data[start : start + form.size]

    def finish(self, path: Path, key: str) -> None:
        """Give the file its name, now that it is whole and on the disk."""
        with self._lock:
            table = msgspec.msgpack.encode(_Table(key, self._matrices))
            _write(self._descriptor, table, self._end)
            os.ftruncate(self._descriptor, self._end + len(table))
            preamble = _PREAMBLE.pack(_MAGIC, _VERSION, self._end, len(table), hashlib.sha256(table).digest())
            os.pwrite(self._descriptor, preamble, 0)
            os.fsync(self._descriptor)
            self._path.rename(path)
            self._close()

    def abandon(self) -> None:
        """Remove the file. What was handed out stays in memory, and its room on the disk is free when that is."""
        with self._lock:
            self._path.unlink(missing_ok=True)
            self._close()

    def _place(self, size: int) -> int:
        """Where the next matrix begins: within one segment, and within what the file may take."""
        offset = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        if offset + size > self._segment.end:
            start = offset // ALLOCATIONGRANULARITY * ALLOCATIONGRANULARITY
            end = max(start + _SEGMENT, offset + size)
            os.ftruncate(self._descriptor, end)  # takes no room before it is written
            mapping = mmap(self._descriptor, end - start, access=ACCESS_COPY, offset=start)
            self._segment = _Segment(start, end, np.frombuffer(mapping, dtype=np.uint8))
            self._mapped.append(self._segment.data)
        if offset + size > self._most_bytes:
            raise OSError(f"it would take more than {self._most_bytes >> 20} MiB, half of what is free on the disk")
        return offset

    def _close(self) -> None:
        """Lets go of the lock as well."""
        os.close(self._descriptor)
        self._descriptor = -1


def remove_unfinished(folder: Path) -> None:
    """Delete files whose writers have died; those that live hold a lock."""
    for path in folder.glob(f"*{UNFINISHED}"):
        try:
            with opened(path) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        except OSError:  # locked, gone, or not ours to delete
            continue


def _create_locked(folder: Path) -> tuple[int, Path]:
    """A new file that `remove_unfinished` leaves alone while its descriptor is open."""
    while True:
        descriptor, name = tempfile.mkstemp(UNFINISHED, dir=folder)  # for this user alone
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # otherwise someone took it for abandoned before the lock was there
                return descriptor, Path(name)
        except OSError:
            os.close(descriptor)
            Path(name).unlink(missing_ok=True)
            raise
        os.close(descriptor)


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def opened(path: Path) -> io.FileIO:
    """For reading, unless it is a link, which someone may have laid to another file."""
    return open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW))


def checked_size(status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise Untrusted("it is no plain file")
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted("others may write to it")
    return status.st_size


def _read_table(descriptor: int, size: int, key: str) -> Mapping[str, _Entry]:
    preamble = os.pread(descriptor, _PREAMBLE.size, 0)
    if size < _DATA_START or len(preamble) < _PREAMBLE.size:
        raise Untrusted("it is too short")
    magic, version, start, length, digest = _PREAMBLE.unpack(preamble)
    if magic != _MAGIC:
        raise Untrusted("it is no file of packed matrices")
    if version != _VERSION:
        raise Untrusted(f"it has version {version}, and {_VERSION} is read")
    if length > _MOST_TABLE_BYTES or start < _DATA_START or start + length != size:
        raise Untrusted("it is not as long as it says")
    encoded = os.pread(descriptor, length, start)
    if hashlib.sha256(encoded).digest() != digest:
        raise Untrusted("its table is damaged")
    try:
        table = msgspec.msgpack.decode(encoded, type=_Table)
    except msgspec.MsgspecError as error:
        raise Untrusted(f"its table cannot be read: {error}") from None
    if table.key != key:
        raise Untrusted("it was packed from something else")
    _check_places(table.matrices, start)
    return table.matrices


def _check_places(matrices: Mapping[str, _Entry], end_of_data: int) -> None:
    """Every matrix lies among the data, aligned, and over no other."""
    end = _DATA_START
    for entry in sorted(matrices.values(), key=lambda entry: entry.offset):
        if entry.form.size < 0 or entry.offset % _ALIGNMENT or entry.offset < end:
            raise Untrusted("its table gives a matrix a place that it cannot have")
        end = entry.offset + entry.form.size
    if end > end_of_data:
        raise Untrusted("its table gives a matrix a place behind the data")
