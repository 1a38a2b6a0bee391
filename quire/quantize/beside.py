"""What lies beside a model's weights: tokenizer, chat template and settings, copied or made from a GGUF file."""

import json
import shutil
from typing import Any

from quire.models.loading.folder import find_model
from quire.models.loading.gguf_header import read_gguf_header
from quire.quantize.partial_folder import PartialFolder
from quire.quantize.source import Source
from quire.text.template_sources import templates_in_gguf
from quire.text.tokenizer import Tokenizer

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ot", ".index.json")
_NOT_COPIED = ("config.json",)
_LARGEST = 100_000_000
"""Bytes of a file that is no weight; tokenizers are far smaller."""


def write_beside(folder: PartialFolder, source: Source, tokenizer: Tokenizer) -> None:
    """Into a folder that is still being written."""
    if source.model.is_gguf:
        _from_gguf(folder, source, tokenizer)
        return
    origin = source.path if source.path.is_dir() else source.path.parent
    for file in sorted(origin.rglob("*")):
        place = file.relative_to(origin)
        hidden = any(part.startswith(".") for part in place.parts)
        if hidden or not file.is_file() or file.name.endswith(_WEIGHTS) or str(place) in _NOT_COPIED:
            continue
        if len(place.parts) <= 2 and file.stat().st_size <= _LARGEST:
            target = folder.path / place
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, target)


def _from_gguf(folder: PartialFolder, source: Source, tokenizer: Tokenizer) -> None:
    file = find_model(source.path).gguf
    assert file is not None, "the source is a GGUF file"
    header = read_gguf_header(file)
    folder.write_text("tokenizer.json", tokenizer.as_json())
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.named_tokens()}
    settings["model_max_length"] = source.spec.max_position
    templates = templates_in_gguf(header)
    if templates:
        folder.write_text("chat_template.jinja", next(iter(templates.values())))
    folder.write_text("tokenizer_config.json", json.dumps(settings, indent=2, ensure_ascii=False))
    ends = list(tokenizer.eos_token_ids)
    if ends:
        generation = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": ends}
        folder.write_text("generation_config.json", json.dumps(generation, indent=2))
