"""Folders of the disk tier: one for each engine, below one for each identity of KV, each under a lock.

A lock goes with the process that holds it, however that ends: folders without one are those of engines that are gone.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "lock"
_MOST_ENGINES = 1024
_IDENTITY_DIGITS = 32


def own_folder(root: Path, identity: bytes) -> tuple[Path, int]:
    """A folder for this process alone, the first of its identity that no other holds, and its open lock."""
    for number in range(_MOST_ENGINES):
        own = root / identity.hex()[:_IDENTITY_DIGITS] / str(number)
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _locked(own)
        if lock is not None:
            os.utime(own)  # the time of the last use, by which folders are removed
            return own, lock
    raise OSError(f"{_MOST_ENGINES} engines use {own.parent} already")


def remove_unused(root: Path, own: Path, room: int, suffix: str) -> list[Path]:
    """Remove what engines of other identities left, the least recently used first, until all of it takes at most `room`
    bytes, beside what others use now. Only files that quire wrote, by their names, are touched."""
    removed: list[Path] = []
    others = [folder for folder in _folders(root) if folder.parent != own.parent]
    sizes = {folder: _size(folder, suffix) for folder in others}
    left = room - _size(own, suffix)
    for folder in sorted(others, key=lambda folder: folder.stat().st_mtime, reverse=True):
        left -= sizes[folder]
        if left < 0 and _remove(folder, suffix):
            left += sizes[folder]
            removed.append(folder)
    return removed


def _folders(root: Path) -> Iterator[Path]:
    for parent in root.iterdir():
        if len(parent.name) == _IDENTITY_DIGITS and set(parent.name) <= set("0123456789abcdef") and parent.is_dir():
            for folder in parent.iterdir():
                if folder.name.isdecimal() and (folder / LOCK).is_file() and not folder.is_symlink():
                    yield folder


def _size(folder: Path, suffix: str) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.glob(f"*{suffix}"))


def _remove(folder: Path, suffix: str) -> bool:
    """False where an engine uses it, or it cannot be removed."""
    with _lock_of(folder) as lock:
        if lock is None:
            return False
        with suppress(OSError):
            for path in folder.glob(f"*{suffix}"):
                path.unlink()
            (folder / LOCK).unlink()
            folder.rmdir()  # fails where someone has put something else there
            folder.parent.rmdir()
        return True


@contextmanager
def _lock_of(folder: Path) -> Iterator[int | None]:
    lock = None
    with suppress(OSError):
        lock = _locked(folder)
    try:
        yield lock
    finally:
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """None where another process holds it, or has just removed it."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink:
            return lock
    except BlockingIOError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
