"""The method of speculative decoding where only a model is named: its files tell how it drafts. Torch-free."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.config.engine import EngineConfig
from quire.config.model import DEFAULT_MODEL
from quire.config.speculation import with_method
from quire.core.errors import CheckpointError
from quire.models.loading.folder import find_model, read_tensors
from quire.models.loading.hub import fetch_header, is_hub_id
from quire.models.loading.json_object import read_json_object
from quire.models.loading.locate import locate


def with_drafting_method(asked: EngineConfig) -> EngineConfig:
    """The same, with a method if `--speculative-config` names a model alone."""
    text, speculation = asked.scheduler.speculative_config, asked.scheduler.speculation()
    if text is None or speculation is None or speculation.method:
        return asked
    config, names = _header(speculation.model)
    drafts_itself = speculation.model == asked.model.model and config.get("num_nextn_predict_layers")
    method = "mtp" if drafts_itself else _method(config, names)
    return replace(asked, scheduler=replace(asked.scheduler, speculative_config=with_method(text, method)))


def _method(config: Mapping[str, Any], names: Collection[str]) -> str:
    """Heads have tensors that no model has: configs of many published ones tell them no otherwise from small models."""
    if "medusa_num_heads" in config:
        return "medusa"
    if any(name.endswith("hidden_norm.weight") for name in names):
        return "eagle3"
    return "eagle" if {"fc.weight", "model.fc.weight"} & set(names) else "draft_model"


def _header(model: str) -> tuple[Mapping[str, Any], Collection[str]]:
    """The config of a model, and the names of its tensors; nothing of a GGUF file, which is never a head's."""
    if is_hub_id(model) and model != DEFAULT_MODEL and not os.path.exists(os.path.expanduser(model)):
        try:
            header = fetch_header(model, None)
            return header.config, {span.name for span in header.tensors}
        except CheckpointError:
            pass  # of GGUF files alone, or the hub is out of reach and an earlier download must do
    found = find_model(Path(locate(model)))
    if found.gguf is not None:
        return {}, ()
    spans = read_tensors(found.safetensors).values()
    return read_json_object(found.config), {span.name for file in spans for span in file}
