"""Whose code a model is: which families quire has of its own, and what `--model-impl auto` means for a checkpoint."""

import logging
from dataclasses import replace
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.model import ModelImpl
from quire.models.loading.folder import find_model
from quire.models.loading.hf_config import ENCODER_TYPES
from quire.models.loading.json_object import read_json_object

_log = logging.getLogger(__name__)

NATIVE_TYPES = frozenset(
    {"llama", "smollm2", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "gemma3_text", "phi3", "gpt2", *ENCODER_TYPES}
)
"""By the `model_type` of a config.json."""


def with_model_impl(asked: EngineConfig, path: Path) -> EngineConfig:
    """The same settings with `auto` replaced for the model at `path`; one line in the log tells of a fallback."""
    if asked.model.model_impl != "auto":
        return asked
    return replace(asked, model=replace(asked.model, model_impl=_impl_of(path)))


def _impl_of(path: Path) -> ModelImpl:
    found = find_model(path)
    if found.gguf is not None:
        return "quire"
    model_type = read_json_object(found.config).get("model_type")
    if model_type in NATIVE_TYPES:
        return "quire"
    _log.warning(
        "quire has no code of its own for %s (%r): it runs through transformers' modules, which is slower; "
        "--model-impl quire refuses such models",
        path,
        model_type,
    )
    return "transformers"
