"""The store's files: written beside, put in place whole, read in chunks. Knows no limits and no database."""

import fcntl
import hashlib
import os
from collections.abc import Container
from pathlib import Path
from typing import BinaryIO

_PART = ".part"


class BlobFiles:
    """One folder. Names are digests of tenant and id, so no id can reach outside it or into another tenant's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def begin(self, tenant: str, identity: str) -> BinaryIO:
        """A file to write to. It is locked, which tells `sweep` that somebody is at it."""
        file = self._part(tenant, identity).open("xb", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def place(self, file: BinaryIO, tenant: str, identity: str) -> None:
        """Put what was written where it can be found; it stays locked until it is closed."""
        os.fsync(file.fileno())
        self._part(tenant, identity).rename(self._path(tenant, identity))
        self._sync_folder()

    def discard(self, tenant: str, identity: str) -> None:
        """Forget a file that was begun, placed or not."""
        self._part(tenant, identity).unlink(missing_ok=True)
        self._path(tenant, identity).unlink(missing_ok=True)

    def open(self, tenant: str, identity: str) -> BinaryIO:
        """Raises a FileNotFoundError where there is none."""
        return self._path(tenant, identity).open("rb", buffering=0)

    def remove(self, tenant: str, identity: str) -> None:
        self._path(tenant, identity).unlink(missing_ok=True)

    def sweep(self, known: Container[str]) -> int:
        """Delete what a killed server left half-written or unrecorded; returns how many files went."""
        swept = 0
        for path in self._folder.iterdir():
            if path.name not in known and _is_idle(path):
                path.unlink(missing_ok=True)
                swept += 1
        return swept

    def name(self, tenant: str, identity: str) -> str:
        return hashlib.sha256(f"{tenant}\0{identity}".encode("utf-8", "surrogatepass")).hexdigest()

    def _path(self, tenant: str, identity: str) -> Path:
        return self._folder / self.name(tenant, identity)

    def _part(self, tenant: str, identity: str) -> Path:
        return self._folder / (self.name(tenant, identity) + _PART)

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _is_idle(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
