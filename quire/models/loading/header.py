"""The facts of a model from its header alone, wherever it lies: a folder, a GGUF file or the hub. Imports no torch."""

import os
from pathlib import Path

from quire.config.facts import ModelFacts
from quire.config.model import DEFAULT_MODEL
from quire.core.errors import CheckpointError, ConfigError
from quire.models.loading.default_model import fetch_default_model
from quire.models.loading.folder import CONFIG, find_model, read_gguf_parts, read_tensors
from quire.models.loading.gguf_facts import gguf_facts
from quire.models.loading.hf_facts import hf_facts
from quire.models.loading.hub import cached_folder, fetch_header, is_hub_id
from quire.models.loading.json_object import read_json_object


def read_model_facts(model: str, revision: str | None = None) -> ModelFacts:
    """Facts of the model at a path, or on the hub where no such path exists."""
    place = os.path.expanduser(model)
    if model == DEFAULT_MODEL and not os.path.exists(place):
        place = str(fetch_default_model())
    if os.path.exists(place):
        path = Path(place)
        if revision is not None:
            raise ConfigError(f"--revision is {revision!r}, but {model} is on this machine; leave --revision out.")
        return _local_facts(path, path.resolve().name if path.is_dir() else path.stem)
    if is_hub_id(model):
        return _hub_facts(model, revision)
    raise CheckpointError(f"there is no file or folder {model!r}, and it is not spelled like a hub id (owner/model).")


def _local_facts(path: Path, name: str) -> ModelFacts:
    found = find_model(path)
    if found.gguf is not None:
        return gguf_facts(found.gguf.stem, read_gguf_parts(found.gguf))
    tensors = [tensor for tensors in read_tensors(found.safetensors).values() for tensor in tensors]
    return hf_facts(name, read_json_object(found.config), tensors, str(found.config))


def _hub_facts(repo: str, revision: str | None) -> ModelFacts:
    try:
        header = fetch_header(repo, revision)
    except CheckpointError:
        folder = cached_folder(repo, revision)
        if folder is None:
            raise
        return _local_facts(folder, repo)
    return hf_facts(repo, header.config, header.tensors, f"{repo}/{CONFIG}")
