"""A model's fingerprint: whether two engines, on whatever hosts, have the same weights. Reads little of large files."""

from hashlib import blake2b
from pathlib import Path

_WEIGHTS = (".safetensors", ".gguf")
_DESCRIPTIONS = ("config.json",)
_PIECE = 4096
_PIECES = 64
"""Of each file: its beginning, which lists its tensors, and others spread over it. Training changes all of a model."""


def fingerprint(path: Path) -> str:
    """Of a folder or a single file, by content: names of files and times do not count."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    digest = blake2b(digest_size=16)
    for file in files:
        if file.name in _DESCRIPTIONS:
            digest.update(file.read_bytes())
        elif file.suffix in _WEIGHTS:
            digest.update(_sampled(file))
    return digest.hexdigest()


def _sampled(file: Path) -> bytes:
    size = file.stat().st_size
    digest = blake2b(size.to_bytes(8, "little"), digest_size=16)
    with file.open("rb") as opened:
        for place in range(_PIECES):
            opened.seek(place * max(0, size - _PIECE) // (_PIECES - 1))
            digest.update(opened.read(_PIECE))
    return digest.digest()
