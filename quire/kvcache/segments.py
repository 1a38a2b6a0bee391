"""Segments: the bytes of KV blocks on disk, in large files of one folder that one engine holds a lock on.

A file begins with a page that says what wrote it: the format's version and the identity of the KV (model, dtype,
layout, block size). A table follows, with an entry for each slot: the block's name, its group and a digest of its
bytes; then come the slots. A slot's entry is cleared before its bytes are written and filled in after them: a process
may be killed anywhere in between. Whatever does not agree is not used: a file of something else is left alone, and its
slots with it; a block that fails its digest is as if it had never been there. Only this user may read the files: they
hold what users said.
"""

import os
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from quire.kvcache.chain import NAME_BYTES
from quire.kvcache.checksum import DIGEST_BYTES, digest
from quire.kvcache.disk import StoredBlock
from quire.kvcache.disk_folders import LOCK

VERSION = 2
"""Of the format; to be raised whenever files of before cannot be read any more."""
_MAGIC = b"quire-kv"
_PAGE = 4096
_SEGMENT_BYTES = 64 << 20
_PREAMBLE = struct.Struct(f"<8sI{NAME_BYTES}sQQ")
"""Magic, version, identity, bytes of a block and slots of a file."""
_ENTRY = struct.Struct(f"<{NAME_BYTES}sI?Q{DIGEST_BYTES}s")
"""Name, group, whether it is retained, number of the write, digest of the bytes."""
_ENTRY_BYTES = _ENTRY.size + DIGEST_BYTES
SUFFIX = ".kv"
"""Of a segment's file."""


class Damaged(Exception):
    """What lies on disk is not what was written."""


class Segments:
    """Slots from 1 on, as the tier counts them. Different slots may be read and written by different threads."""

    def __init__(self, folder: Path, identity: bytes, block_bytes: int, num_slots: int, lock: int) -> None:
        """`folder` and its open `lock` are from `own_folder`; `identity` says whose KV it is."""
        self._folder = folder
        self._folder_lock = lock
        self._block_bytes = block_bytes
        self._slot_bytes = _whole_pages(block_bytes)
        self._slots_each = slots_each(block_bytes)
        self._num_slots = num_slots
        self._data_start = _data_start(self._slots_each)
        preamble = _PREAMBLE.pack(_MAGIC, VERSION, identity, block_bytes, self._slots_each)
        self._preamble = preamble + digest(preamble)
        self._files: dict[int, int] = {}
        self._lock = Lock()
        self._writes = 0

    def scan(self) -> tuple[list[StoredBlock], list[int], list[str]]:
        """What earlier processes left: blocks, slots that cannot be used, and what is wrong with which file."""
        found: list[StoredBlock] = []
        unusable: list[int] = []
        problems: list[str] = []
        last = (self._num_slots - 1) // self._slots_each
        for path in sorted(self._folder.iterdir()):
            number = _number(path)
            if number is None:
                if path.name != LOCK:
                    problems.append(f"{path}: no file of KV")
                continue
            try:
                descriptor = self._opened(path)
            except (OSError, Damaged) as error:
                problems.append(f"{path}: {error}")
                if number <= last:
                    unusable += self._slots_of(number)
                continue
            if number > last:  # there is less room than there was
                os.close(descriptor)
                path.unlink()
                continue
            self._files[number] = descriptor
            found += self._entries(descriptor, number)
        self._writes = max((stored.sequence for stored in found), default=0)
        return found, unusable, problems

    def write(self, slot: int, group: int, name: bytes, data: memoryview, *, is_retained: bool = False) -> None:
        """Raises OSError where the disk does not take it; then nothing is in the slot."""
        with self._lock:
            self._writes += 1
            sequence = self._writes
            descriptor = self._file(self._place(slot)[0], create=True)
        entry_at, data_at = self._places(slot)
        _write(descriptor, bytes(_ENTRY_BYTES), entry_at)
        _write(descriptor, data, data_at)
        entry = _ENTRY.pack(name, group, is_retained, sequence, digest(name, data))
        _write(descriptor, entry + digest(entry), entry_at)

    def read(self, slot: int, name: bytes, into: memoryview) -> None:
        """Raises Damaged, or OSError, unless these are the bytes that were written under this name."""
        with self._lock:
            descriptor = self._file(self._place(slot)[0], create=False)
        entry_at, data_at = self._places(slot)
        entry = _entry(os.pread(descriptor, _ENTRY_BYTES, entry_at))
        if entry is None or entry[0] != name:
            raise Damaged("the slot holds another block than the one it was asked for")
        if os.preadv(descriptor, [into], data_at) != len(into) or digest(name, into) != entry[4]:
            raise Damaged("the block's bytes are not those that were written")

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        if self._folder_lock >= 0:
            os.close(self._folder_lock)
            self._folder_lock = -1

    # -- inside ------------------------------------------------------------------------------------------------

    def _place(self, slot: int) -> tuple[int, int]:
        """Its file and its place in it."""
        return divmod(slot - 1, self._slots_each)

    def _places(self, slot: int) -> tuple[int, int]:
        """Where its entry and its bytes begin."""
        _, place = self._place(slot)
        return _PAGE + place * _ENTRY_BYTES, self._data_start + place * self._slot_bytes

    def _slots_of(self, number: int) -> Sequence[int]:
        first = number * self._slots_each + 1
        return range(first, min(first + self._slots_each, self._num_slots + 1))

    def _file(self, number: int, *, create: bool) -> int:
        descriptor = self._files.get(number)
        if descriptor is None:
            if not create:
                raise Damaged("the block's file is gone")
            path = self._folder / f"{number:08d}{SUFFIX}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            _write(descriptor, self._preamble, 0)
            self._files[number] = descriptor
        return descriptor

    def _opened(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise Damaged("it is no plain file of this user's alone")
            preamble = os.pread(descriptor, len(self._preamble), 0)
            if preamble[: len(_MAGIC)] != _MAGIC:
                raise Damaged("it is no file of KV")
            if preamble != self._preamble:
                raise Damaged("it is of another model, layout or version, or damaged")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _entries(self, descriptor: int, number: int) -> Iterator[StoredBlock]:
        table = os.pread(descriptor, self._slots_each * _ENTRY_BYTES, _PAGE)
        for place, slot in enumerate(self._slots_of(number)):
            entry = _entry(table[place * _ENTRY_BYTES : (place + 1) * _ENTRY_BYTES])
            if entry is not None:
                name, group, is_retained, sequence, _ = entry
                yield StoredBlock(slot, group, name, sequence, is_retained)


def slots_each(block_bytes: int) -> int:
    """Slots of one file."""
    return max(1, _SEGMENT_BYTES // _whole_pages(block_bytes))


def slots_in(room: int, block_bytes: int) -> int:
    """Slots that so many bytes of a disk hold, tables and padding counted."""
    each, padded = slots_each(block_bytes), _whole_pages(block_bytes)
    files, rest = divmod(room, _data_start(each) + each * padded)
    return files * each + max(0, rest - _data_start(each)) // padded


def _data_start(slots: int) -> int:
    return _PAGE + _whole_pages(slots * _ENTRY_BYTES)


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _number(path: Path) -> int | None:
    stem = path.name.removesuffix(SUFFIX)
    return int(stem) if path.name.endswith(SUFFIX) and len(stem) == 8 and stem.isdecimal() else None


def _entry(data: bytes) -> tuple[bytes, int, bool, int, bytes] | None:
    """A slot's entry; None where it is empty or was not written to its end."""
    entry = data[: _ENTRY.size]
    if len(data) < _ENTRY_BYTES or not any(entry) or digest(entry) != data[_ENTRY.size :]:
        return None
    return _ENTRY.unpack(entry)


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written
