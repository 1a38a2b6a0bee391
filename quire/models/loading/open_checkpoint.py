"""The model at a path, in whichever format it is there."""

from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.checkpoint import Checkpoint
from quire.models.loading.folder import find_model
from quire.models.loading.gguf_checkpoint import gguf_checkpoint
from quire.models.loading.json_object import read_json_object
from quire.models.loading.safetensors_checkpoint import safetensors_checkpoint


def read_config(path: Path) -> dict[str, Any]:
    """What the config.json of the model at `path` says, or would say; its weights need not be there."""
    found = find_model(path)
    return gguf_checkpoint(found.gguf).config() if found.gguf is not None else read_json_object(found.config)


def open_checkpoint(path: Path) -> Checkpoint:
    """A folder with config.json and .safetensors files or with one GGUF model, or one such file."""
    found = find_model(path)
    if found.gguf is not None:
        return gguf_checkpoint(found.gguf)
    if not found.safetensors:
        raise CheckpointError(f"{path} holds a config.json but no weights; download the .safetensors files as well.")
    return safetensors_checkpoint(found.safetensors, found.config)
