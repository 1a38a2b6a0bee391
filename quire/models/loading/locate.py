"""From the name a user gives to the files of a model on this machine."""

import os
from pathlib import Path

from quire.config.model import DEFAULT_MODEL
from quire.core.errors import CheckpointError
from quire.models.loading.default_model import fetch_default_model
from quire.models.loading.hub import download, is_hub_id


def locate(model: str, revision: str | None = None) -> Path:
    """A path as it is, the default model by its name, anything else from the hub; downloads what is not here yet."""
    path = Path(os.path.expanduser(model))
    if path.exists():
        return path
    if model == DEFAULT_MODEL:
        return fetch_default_model()
    if is_hub_id(model):
        return download(model, revision)
    raise CheckpointError(f"there is no file or folder {model!r}, and it is not spelled like a hub id (owner/model).")
