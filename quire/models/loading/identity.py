"""Which checkpoint this is, without reading all of it: what is derived from it can tell whether it is still of use."""

from hashlib import blake2b
from pathlib import Path

from quire.models.loading.folder import find_model

_READ = 1 << 16
"""Bytes at either end of a file: headers are at the beginning."""


def checkpoint_identity(path: Path, mmproj: str | None = None) -> str:
    """Changes with the files' names, sizes, times and ends; a copy that keeps times is the same checkpoint.

    `mmproj` is the file of a vision encoder, which decides what tokens of images leave in the cache.
    """
    found = find_model(path)
    files = [found.config, *found.safetensors] if found.gguf is None else [found.gguf]
    files += [] if mmproj is None else [Path(mmproj)]
    digest = blake2b(digest_size=16)
    for file in files:
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\0".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(_READ))
            opened.seek(max(0, status.st_size - _READ))
            digest.update(opened.read(_READ))
    return digest.hexdigest()
