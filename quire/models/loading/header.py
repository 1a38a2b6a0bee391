"""The facts of a model from its header alone, wherever it lies: a folder, a GGUF file or the hub. Imports no torch."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.config.dtypes import PLAIN_FLOATS
from quire.config.facts import ModelFacts
from quire.config.model import DEFAULT_MODEL, NO_MMPROJ, ModelImpl
from quire.core.errors import CheckpointError, ConfigError
from quire.models.families.dimensions import text_values
from quire.models.loading.answer_words import describe_causal_lm, read_answer_words, scored_by_answer
from quire.models.loading.default_model import fetch_default_model
from quire.models.loading.described import DescribedModel, describe_local
from quire.models.loading.folder import CONFIG
from quire.models.loading.hub import cached_folder, fetch_header, is_hub_id
from quire.models.loading.match import Matched
from quire.models.loading.match_safetensors import match_safetensors
from quire.models.loading.mmproj.find import MmprojChoice, find_mmproj
from quire.models.loading.quantization.read import read_quantization
from quire.models.loading.spans import TensorSpan
from quire.models.registry import describe

_USUAL_DTYPE = "float32"
"""What a config.json without a dtype means."""


def read_model_facts(
    model: str, revision: str | None = None, impl: ModelImpl = "auto", mmproj: str | None = None
) -> ModelFacts:
    """Facts of the model at a path, or on the hub where no such path exists; `impl` is whose code it is to run.

    `mmproj` is the file of a GGUF model's vision encoder, or `none`; None: what lies beside the model.
    """
    place = os.path.expanduser(model)
    if model == DEFAULT_MODEL and not os.path.exists(place):
        place = str(fetch_default_model())
    if os.path.exists(place):
        if revision is not None:
            raise ConfigError(f"--revision is {revision!r}, but {model} is on this machine; leave --revision out.")
        path = Path(place).resolve()
        return _local_facts(Path(place), path.stem if path.is_file() else path.name, impl, mmproj)
    if is_hub_id(model):
        return _hub_facts(model, revision, impl, mmproj)
    raise CheckpointError(f"there is no file or folder {model!r}, and it is not spelled like a hub id (owner/model).")


def config_facts(name: str, config: Mapping[str, Any]) -> ModelFacts:
    """Facts of a model that is nothing but a config."""
    spec = describe(config, name)
    return ModelFacts(name, spec, _config_dtype(config) or _USUAL_DTYPE)


def _local_facts(path: Path, name: str, impl: ModelImpl, mmproj: str | None) -> ModelFacts:
    model, left_out = _described(path, impl, find_mmproj(path, mmproj))
    if model.is_gguf:
        # A config.json would give the dtype of the model that was converted; what matters is what it became.
        file = next(iter(model.files.values()))
        eyes = None if model.media is None else Path(model.media.source)
        own = (span for span in model.spans() if model.files[span.name] != eyes)
        facts = _facts(file.stem, model.matched, _most_common(own))
        return replace(facts, media=model.media, left_out=(*facts.left_out, *left_out))
    return replace(_facts(name, model.matched, _dtype(model)), other_bytes=_bytes_by_dtype(model.undescribed))


def _described(path: Path, impl: ModelImpl, choice: MmprojChoice) -> tuple[DescribedModel, tuple[str, ...]]:
    """The model, and what is left out of it: a vision encoder that merely lies beside it and does not fit."""
    try:
        return describe_local(path, impl, choice.file), choice.left_out
    except CheckpointError as error:
        if choice.file is None or choice.is_asked:
            raise
        reason = str(error).removeprefix(f"{choice.file} ").removeprefix(f"{choice.file}: ")
        return describe_local(path, impl), (f"{choice.file.name}, so that the model reads texts alone: {reason}",)


def _hub_facts(repo: str, revision: str | None, impl: ModelImpl, mmproj: str | None) -> ModelFacts:
    try:
        header = fetch_header(repo, revision)
    except CheckpointError:
        folder = cached_folder(repo, revision)
        if folder is None:
            raise
        return _local_facts(folder, repo, impl, mmproj)
    if mmproj not in (None, NO_MMPROJ):
        raise ConfigError(f"--mmproj is {mmproj!r}, and {repo} on the hub is no GGUF model; leave --mmproj out.")
    source = f"{repo}/{CONFIG}"
    scheme_of = read_quantization(header.config, source)
    words = read_answer_words(header.config, source)
    spec = (describe_causal_lm if words else describe)(header.config, source, impl)
    dtype = _config_dtype(header.config) or _most_common_float(header.tensors)
    if not spec.is_described:
        return ModelFacts(repo, spec, dtype, other_bytes=_bytes_by_dtype(header.tensors))
    matched = match_safetensors(spec, header.tensors, scheme_of, repo)
    if words:  # which rows they are makes no difference to a plan, and the tokenizer is not here
        matched = replace(matched, spec=scored_by_answer(matched.spec, words, range(len(words)), source))
    return _facts(repo, matched, dtype)


def _facts(name: str, matched: Matched, dtype: str) -> ModelFacts:
    kinds = {tensor: found.span.dtype for tensor, found in matched.found.items()}
    return ModelFacts(name, matched.spec, dtype, kinds, schemes=matched.schemes, left_out=matched.left_out)


def _dtype(model: DescribedModel) -> str:
    return _config_dtype(model.config) or (_most_common_float(model.spans()) if model.has_weights else _USUAL_DTYPE)


def _config_dtype(config: Mapping[str, Any]) -> str | None:
    for values in (text_values(config), config):
        for field in ("dtype", "torch_dtype"):
            value = values.get(field)
            if isinstance(value, str) and value:
                return value.removeprefix("torch.")
    return None


def _bytes_by_dtype(spans: Iterable[TensorSpan]) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for span in spans:
        sizes[span.dtype] += span.num_bytes
    return dict(sizes.most_common())


def _most_common(spans: Iterable[TensorSpan]) -> str:
    return next(iter(_bytes_by_dtype(spans)))


def _most_common_float(spans: Iterable[TensorSpan]) -> str:
    plain = [span for span in spans if span.dtype in PLAIN_FLOATS]
    return _most_common(plain) if plain else _USUAL_DTYPE
