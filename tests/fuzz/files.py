"""Targets that read files of models: GGUF, safetensors, tokenizers."""

import json
import tempfile
from pathlib import Path

from quire.models.loading.gguf_config import gguf_config
from quire.models.loading.gguf_header import GGUFArray, read_gguf_header
from quire.models.loading.safetensors_header import read_safetensors_header
from quire.text.from_folder import tokenizer_from_folder
from quire.text.from_gguf import tokenizer_from_gguf
from quire.text.sentencepiece_file import read_sentencepiece
from tests.fuzz.target import Target
from tests.models.loading.files import GGUF_METADATA, GGUF_TENSORS, gguf_bytes, write_safetensors
from tests.text import vocabularies

_SHAPES = {"a": ("BF16", (2, 3)), "b": ("F32", ()), "c": ("I8", (0, 5)), "d": ("F4", (4,))}


def gguf(folder: Path) -> Target:
    def take(data: bytes) -> None:
        header = read_gguf_header(_written(folder, "model.gguf", data))
        for value in header.metadata.values():
            if isinstance(value, GGUFArray):
                value.read()
        gguf_config([header])

    return Target("gguf", [gguf_bytes(GGUF_METADATA, GGUF_TENSORS, version) for version in (2, 3)], take)


def gguf_tokenizer(folder: Path) -> Target:
    spm = vocabularies.spm_metadata(vocabularies.sentencepiece_model())
    bpe = vocabularies.bpe_metadata(vocabularies.byte_level(), "gpt-2")
    seeds = [vocabularies.write_gguf(folder / "seed.gguf", metadata).read_bytes() for metadata in (spm, bpe)]

    def take(data: bytes) -> None:
        tokenizer = tokenizer_from_gguf(read_gguf_header(_written(folder, "vocabulary.gguf", data)))
        tokenizer.decode(tokenizer.encode("Hello there, 你好"))

    return Target("gguf tokenizer", seeds, take)


def safetensors(folder: Path) -> Target:
    seed = write_safetensors(folder / "seed.safetensors", _SHAPES).read_bytes()
    return Target(
        "safetensors", [seed], lambda data: read_safetensors_header(_written(folder, "model.safetensors", data))
    )


def sentencepiece(folder: Path) -> Target:
    seed = vocabularies.sentencepiece_model()
    return Target("sentencepiece", [seed], lambda data: read_sentencepiece(_written(folder, "tokenizer.model", data)))


def tokenizer_json(folder: Path) -> Target:
    home = vocabularies.write_folder(folder / "json", vocabularies.byte_level())
    seeds = [
        json.dumps(json.loads(kind.to_str())).encode() for kind in (vocabularies.byte_level(), vocabularies.metaspace())
    ]

    def take(data: bytes) -> None:
        _written(home, "tokenizer.json", data)
        tokenizer = tokenizer_from_folder(home)
        tokenizer.decode(tokenizer.encode("Hello there, 你好"))

    return Target("tokenizer.json", seeds, take, is_json=True)


def tokenizer_config(folder: Path) -> Target:
    home = vocabularies.write_folder(folder / "config", vocabularies.byte_level())
    added = {"0": {"content": "<x>", "special": True, "lstrip": False, "normalized": False}}
    seed = {
        "eos_token": {"content": "<|im_end|>"},
        "bos_token": "<s>",
        "added_tokens_decoder": added,
        "add_bos_token": 1,
    }

    def take(data: bytes) -> None:
        _written(home, "tokenizer_config.json", data)
        tokenizer_from_folder(home)

    return Target("tokenizer_config.json", [json.dumps(seed).encode()], take, is_json=True)


def _written(folder: Path, name: str, data: bytes) -> Path:
    """A new file each time: readers keep what they read of one that has not changed."""
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(data)
    return Path(file.name).replace(folder / name)
