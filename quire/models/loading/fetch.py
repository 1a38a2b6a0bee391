"""A model's files on this machine: whether they are here, where, and how large; downloads them when they are not."""

import os
from dataclasses import dataclass
from pathlib import Path

from quire.config.model import DEFAULT_MODEL
from quire.models.loading.default_model import default_model_path
from quire.models.loading.gguf_choice import SeveralModels, gguf_models
from quire.models.loading.hub import cached_folder, is_hub_id
from quire.models.loading.locate import locate

__all__ = ["DEFAULT_MODEL", "Fetched", "SeveralModels", "fetch", "find_here"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model that is here now."""

    path: Path
    size: int
    """Bytes of all its files."""
    was_here: bool


def find_here(model: str, revision: str | None = None, file: str | None = None) -> Path | None:
    """Where a model's files are, when that needs no network."""
    path = Path(os.path.expanduser(model))
    if path.exists():
        return path
    if model == DEFAULT_MODEL:
        return default_model_path()
    return cached_folder(model, revision, file) if is_hub_id(model) else None


def fetch(model: str, revision: str | None = None, file: str | None = None) -> Fetched:
    """Download what is missing. A model on the hub is asked for again, so that a part of it counts as missing.

    `file` is one of several GGUF files that it has there; raises SeveralModels where one must be named.
    """
    before = find_here(model, revision, file)
    held = None if before is None else _size(before)
    path = locate(model, revision, file)
    size = _size(path)
    return Fetched(path, size, was_here=(before, held) == (path, size))


def _size(path: Path) -> int:
    if path.is_file():
        beside = {file.name: file.stat().st_size for file in path.parent.glob("*.gguf")}
        models = (model for model in gguf_models(beside) if path.name in model.files)
        return next((model.size for model in models), path.stat().st_size)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
