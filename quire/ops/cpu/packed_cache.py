"""PackedCache: the packed matrices of one checkpoint, in a file that all processes share and the next start finds.

Owns a folder of such files: which one belongs to a checkpoint, how many are kept, how much of the disk they take.
Whatever goes wrong with a file costs time and memory, never a start: matrices are then packed in memory.
"""

import hashlib
import json
import logging
import os
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from quire.ops.cpu.layouts import MatrixForm
from quire.ops.cpu.packed_file import Bytes, PackedFile, PackedFileWriter, Untrusted, remove_unfinished

LAYOUT_VERSION = 1
"""To be raised whenever the same tensors become other packed bytes; test_packed_cache.py notices when that is so."""

_log = logging.getLogger(__name__)
_SUFFIX = ".packed"
_RECORD_SUFFIX = ".record"
_MOST_FILES = 8


class PackedCache:
    """Matrices by name, found in the cache's file, or packed and added to it. Threads may share it.

    `commit` after the last one; `discard` when loading has failed. Both leave every matrix usable.
    """

    def __init__(self, path: Path, key: str, file: PackedFile | None, writer: PackedFileWriter | None) -> None:
        """With neither file nor writer everything stays in memory."""
        self._path = path
        self._key = key
        self.file = file
        """All of them, if an earlier start has packed them."""
        self._writer = writer
        self._written = writer
        """The same, also once all of it is on the disk."""
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._lacks_some = False

    @property
    def record_path(self) -> Path:
        """Where a record of the model that these matrices belong to is kept; it goes when they go."""
        return self._path.with_suffix(_RECORD_SUFFIX)

    def give_back_pages(self) -> None:
        """Take no memory for what lies in a file until it is used again; what does not stays."""
        for mapped in (self.file, self._written):
            if mapped is not None:
                mapped.give_back_pages()

    def matrix(self, name: str, form: MatrixForm, pack: Callable[[], Bytes]) -> Bytes:
        """The packed bytes of a matrix; `pack` is called only if the cache does not have them."""
        self._ask_once(name)
        found = None if self.file is None else self.file.matrix(name, form)
        if found is not None:
            return found
        if self.file is not None:
            self._note_lack(name)
        return self._keep(name, form, pack())

    def commit(self) -> None:
        """Make what was packed the file that others find; waits until it is on the disk."""
        with self._lock:
            writer, self._writer = self._writer, None
            if self._lacks_some:
                with suppress(OSError):
                    self._path.unlink()
        if writer is None:
            return
        try:
            writer.finish(self._path, self._key)
        except OSError as error:
            self._give_up(writer, error)

    def discard(self) -> None:
        """Leave no file of what was packed so far."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):
                writer.abandon()

    def _ask_once(self, name: str) -> None:
        with self._lock:
            if name in self._asked:
                raise ValueError(
                    f"a matrix {name!r} is there already, and the cache would give both the same values; "
                    "give each matrix of a model its own name, and each load its own cache"
                )
            self._asked.add(name)

    def _keep(self, name: str, form: MatrixForm, data: Bytes) -> Bytes:
        writer = self._writer
        if writer is None:
            return data
        try:
            return writer.append(name, form, data)
        except OSError as error:
            with self._lock:
                is_first, self._writer = self._writer is not None, None
            if is_first:
                self._give_up(writer, error)
            return data

    def _note_lack(self, name: str) -> None:
        with self._lock:
            is_first, self._lacks_some = not self._lacks_some, True
        if is_first:
            _log.warning(
                "%s lacks %s as it is needed; it is packed in memory, and the next start makes the file anew",
                self._path,
                name,
            )

    def _give_up(self, writer: PackedFileWriter, error: OSError) -> None:
        _log.warning("packed weights stay in memory, since %s cannot be written: %s", self._path, error)
        with suppress(OSError):
            writer.abandon()


def open_packed_cache(folder: Path, files: Sequence[Path], asked: str) -> PackedCache:
    """The cache of the checkpoint in `files`, ready to read or, where it has no file yet, to write one.

    `asked` is whatever else decides which matrices there are and what they hold: the policy, a shard's rank, the
    version of what reads checkpoints. To be called before the files are read: those that change meanwhile are then
    kept under the key of what they were, and not of what they are.
    """
    try:
        key = cache_key(files, asked)
    except OSError as error:
        _log.warning("packed weights stay in memory, since their checkpoint cannot be looked at: %s", error)
        return PackedCache(folder, "", None, None)
    path = folder / f"{key}{_SUFFIX}"
    file = _open_file(path, key)
    return PackedCache(path, key, file, _open_writer(path, files) if file is None else None)


def cache_key(files: Sequence[Path], asked: str) -> str:
    """What tells one packed checkpoint from another; a file that was touched counts as another."""
    resolved = sorted(path.resolve(strict=True) for path in files)
    facts = [(str(path), status.st_size, status.st_mtime_ns) for path in resolved for status in (path.stat(),)]
    described = json.dumps([LAYOUT_VERSION, sys.byteorder, asked, facts])
    return hashlib.sha256(described.encode()).hexdigest()


def _open_file(path: Path, key: str) -> PackedFile | None:
    try:
        file = PackedFile(path, key)
    except FileNotFoundError:
        return None
    except Untrusted as error:
        _log.warning("%s is not used and will be made anew: %s", path, error)
        return None
    with suppress(OSError):
        os.utime(path)  # the time of the last use, by which old files are deleted
    remove_unfinished(path.parent)
    return file


def _open_writer(path: Path, files: Sequence[Path]) -> PackedFileWriter | None:
    try:
        _make_private(path.parent)
        remove_unfinished(path.parent)
        # packed matrices take about what the checkpoint does; the writer itself sees to it that they take no more
        most_bytes = _make_room(path, sum(file.stat().st_size for file in files))
        return PackedFileWriter(path.parent, most_bytes)
    except OSError as error:
        _log.warning("packed weights stay in memory, since %s cannot be written: %s", path, error)
        return None


def _make_private(folder: Path) -> None:
    """The folder, for this user alone: who can write to it decides what others' models say."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)


def _make_room(path: Path, wanted: int) -> int:
    """Bytes that a new file may take: half of what is free, once files that were not used for long are deleted."""
    others = _by_last_use(path)
    while len(others) >= _MOST_FILES:
        _remove(others.pop(0)[0])
    most = shutil.disk_usage(path.parent).free // 2
    could_be_free = sum(size for _, size in others)
    while others and most < wanted <= most + could_be_free // 2:
        oldest, size = others.pop(0)
        _remove(oldest)
        could_be_free -= size
        most = shutil.disk_usage(path.parent).free // 2
    if most < wanted:
        raise OSError(f"it would take about {wanted >> 20} MiB, more than half of what is free on the disk")
    return most


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(_RECORD_SUFFIX).unlink(missing_ok=True)


def _by_last_use(path: Path) -> list[tuple[Path, int]]:
    """The other files of the folder and their sizes, the one that was not used for longest first."""
    found = []
    for other in path.parent.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            status = other.lstat()
            if other != path and stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, other, status.st_size))
    return [(other, size) for _, other, size in sorted(found)]
