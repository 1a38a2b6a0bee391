"""DescribedModel: a model on this machine as its headers tell it, each tensor matched with the spec. Torch-free."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quire.config.facts import MediaFacts
from quire.config.model import ModelImpl
from quire.core.errors import CheckpointError
from quire.models.loading.answer_words import answer_token_ids, describe_causal_lm, read_answer_words, scored_by_answer
from quire.models.loading.folder import find_model, read_gguf_parts, read_tensors
from quire.models.loading.gguf_config import gguf_config
from quire.models.loading.json_object import read_json_object
from quire.models.loading.match import Matched, match
from quire.models.loading.match_safetensors import match_safetensors
from quire.models.loading.mmproj.pair import read_pair, refuse_mmproj_as_model
from quire.models.loading.quantization.read import read_quantization
from quire.models.loading.spans import TensorSpan
from quire.models.loading.tensor_names import gguf_names
from quire.models.registry import FAMILIES, describe, describe_gguf


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """Nothing of its weights is read."""

    path: Path
    """Of the folder or the GGUF file."""
    config: dict[str, Any]
    """What a config.json says, or would say."""
    matched: Matched
    files: Mapping[str, Path]
    """By name of a tensor in its file: that file."""
    undescribed: Sequence[TensorSpan]
    """All tensors of a model whose spec describes none."""
    is_gguf: bool
    media: MediaFacts | None = None
    """How it reads images, where an mmproj file says it."""

    @property
    def has_weights(self) -> bool:
        return bool(self.files)

    def spans(self) -> Iterator[TensorSpan]:
        """Every tensor that the model takes, in the order of the files."""
        yield from (span for found in self.matched.found.values() for span in found.spans)
        yield from self.undescribed


def model_types() -> tuple[str, ...]:
    """Those of quire's own families."""
    return tuple(FAMILIES)


def describe_local(
    path: Path, impl: ModelImpl = "auto", mmproj: Path | None = None, *, as_trained: bool = False
) -> DescribedModel:
    """The model in a folder, or that a file is; a checkpoint that quire would misread is refused.

    `impl` is whose code it is to run; a GGUF file is always quire's own. `mmproj` is the file of such a model's vision
    encoder. `as_trained`: a causal LM that its config makes a classifier is described as a causal LM.
    """
    found = find_model(path)
    if found.gguf is not None:
        return _of_gguf(found.gguf, mmproj)
    config = read_json_object(found.config)
    source = str(found.config)
    scheme_of = read_quantization(config, source)
    words = read_answer_words(config, source)
    spec = (describe_causal_lm if words else describe)(config, source, impl)
    tensors = read_tensors(found.safetensors)
    spans = [span for file in tensors.values() for span in sorted(file, key=lambda span: span.start)]
    files = {span.name: file for file, held in tensors.items() for span in held}
    if not spec.is_described:
        return DescribedModel(path, config, Matched(spec, {}), files, spans, is_gguf=False)
    matched = match_safetensors(spec, spans, scheme_of, str(found.config.parent))
    if words and not as_trained:
        ids = answer_token_ids(words, found.config.parent, source)
        matched = replace(matched, spec=scored_by_answer(matched.spec, words, ids, source))
    return DescribedModel(path, config, matched, files, (), is_gguf=False)


def _of_gguf(path: Path, mmproj: Path | None) -> DescribedModel:
    headers = read_gguf_parts(path)
    refuse_mmproj_as_model(headers[0])
    if not any(header.tensors for header in headers):
        raise CheckpointError(f"{path} holds no tensors; it is a vocabulary or adapter, not a model.")
    config = gguf_config(headers)
    spec = describe_gguf(config, str(path))
    spans: list[TensorSpan] = []
    files: dict[str, Path] = {}
    for header in headers:
        for span in sorted(header.tensors, key=lambda span: span.start):
            if span.name in files:
                raise CheckpointError(
                    f"{header.path}: tensor {span.name!r} is in another part as well; keep one model in a folder."
                )
            files[span.name] = header.path
            spans.append(span)
    matched = match(spec, spans, gguf_names(spec), str(path))
    if mmproj is None:
        return DescribedModel(path, config, matched, files, (), is_gguf=True)
    pair = read_pair(headers, config, mmproj)
    whole = pair.spec if matched.spec is spec else pair.spec.without_head()
    found = pair.match()
    files |= {span.name: mmproj for each in found.values() for span in each.spans}
    matched = replace(matched, spec=whole, found={**matched.found, **found})
    return DescribedModel(path, pair.config, matched, files, (), is_gguf=True, media=pair.media)
