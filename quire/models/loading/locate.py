"""From the name a user gives to the files of a model on this machine."""

import os
from pathlib import Path

from quire.config.model import DEFAULT_MODEL
from quire.core.errors import CheckpointError, ConfigError
from quire.core.nearest import did_you_mean
from quire.models.loading.default_model import fetch_default_model
from quire.models.loading.hub import download, is_hub_id, split_tag


def locate(model: str, revision: str | None = None, file: str | None = None) -> Path:
    """A path as it is, the default model by its name, anything else from the hub; downloads what is not here yet.

    `file` is one of several GGUF files of a model on the hub; `owner/model:Q4_K_M` names it by its quantization.
    """
    path = Path(os.path.expanduser(model))
    if file is not None and (path.exists() or model == DEFAULT_MODEL or not is_hub_id(model) or split_tag(model)[1]):
        raise ConfigError(
            f"--file is {file!r}, which names a file of a model on the hub, and the model is {model!r}; give the model "
            "as owner/model, or leave --file out."
        )
    if path.exists():
        return path
    if model == DEFAULT_MODEL:
        return fetch_default_model()
    if not is_hub_id(model):
        raise CheckpointError(
            f"there is no file or folder {model!r}, and it is not spelled like a hub id (owner/model).{_near(model)}"
        )
    try:
        return download(model, revision, file)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{_near(model)}") from None


def _near(model: str) -> str:
    """What may have been meant: the default model, or a file or folder beside the path that was given."""
    folder = Path(os.path.expanduser(model)).parent
    before = model[: len(model) - len(Path(model).name)]
    beside = [before + each.name for each in folder.iterdir()] if folder.is_dir() else []
    return did_you_mean(model, [DEFAULT_MODEL, *sorted(beside)])
