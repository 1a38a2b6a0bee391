"""From the files of a head to what they hold, matched with what the head of a model takes. Torch-free."""

from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.dimensions import read_dimensions, text_values
from quire.models.heads.eagle import describe_eagle
from quire.models.heads.eagle3 import describe_eagle3
from quire.models.heads.medusa import describe_medusa
from quire.models.heads.mtp import describe_mtp
from quire.models.loading.described import DescribedModel
from quire.models.loading.folder import find_model, read_tensors
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.json_object import read_json_object
from quire.models.loading.match_safetensors import match_safetensors
from quire.models.loading.quantization.read import read_quantization
from quire.spec.draft_head import HeadKind
from quire.spec.model import ModelSpec


def describe_head(path: Path, kind: HeadKind, large: ModelSpec) -> DescribedModel:
    """The head at `path`, for a model of this spec; MTP's lies in the files of the model itself."""
    found = find_model(path)
    if found.gguf is not None:
        raise CheckpointError(
            f"{path} is a GGUF file, and heads that draft are read from .safetensors files; give a folder with those."
        )
    config = read_json_object(found.config)
    tensors = read_tensors(found.safetensors)
    spans = [span for file in tensors.values() for span in sorted(file, key=lambda span: span.start)]
    files = {span.name: file for file, held in tensors.items() for span in held}
    spec = _describe(kind, config, str(found.config), set(files), large)
    matched = match_safetensors(spec, spans, read_quantization(config, str(found.config)), str(found.config.parent))
    return DescribedModel(path, config, matched, files, (), is_gguf=False)


def _describe(kind: HeadKind, config: dict[str, Any], source: str, names: set[str], large: ModelSpec) -> ModelSpec:
    if kind == "mtp":
        return describe_mtp(large, source)
    fields = HFFields(text_values(config), source)
    if kind == "medusa":
        return describe_medusa(fields, names, large)
    architecture = next(iter(config.get("architectures") or ()), kind)
    # a head's config may leave out what is the large model's
    usual = {"vocab_size": large.vocab_size, "num_hidden_layers": 1, "max_position_embeddings": large.max_position}
    dims = read_dimensions(HFFields({**usual, **fields.values}, source), str(architecture))
    return describe_eagle(dims, names, large) if kind == "eagle" else describe_eagle3(dims, names, large)
