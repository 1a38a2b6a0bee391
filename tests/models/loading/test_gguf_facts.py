"""Facts from GGUF metadata."""

from pathlib import Path
from typing import Any

import pytest

from quire.config.facts import ModelFacts
from quire.core.errors import CheckpointError
from quire.models.loading.gguf_facts import gguf_facts
from quire.models.loading.gguf_header import read_gguf_header
from tests.models.loading.files import GGUF_METADATA, GGUF_TENSORS, gguf_bytes


def facts(tmp_path: Path, tensors: Any = GGUF_TENSORS, **changes: Any) -> ModelFacts:
    metadata = {key: value for key, value in (GGUF_METADATA | changes).items() if value is not None}
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(metadata, tensors))
    return gguf_facts("tiny", [read_gguf_header(path)])


def llama(**changes: Any) -> dict[str, Any]:
    return {f"llama.{name.replace('__', '.')}": value for name, value in changes.items()}


def test_facts_are_read(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert (found.architecture, found.num_layers, found.hidden_size) == ("LlamaForCausalLM", 2, 256)
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (4, 2, 64)
    assert (found.vocab_size, found.max_position) == (3, 64)
    assert found.weight_bytes == {"float32": 1024, "Q4_K": 432}
    assert found.num_parameters == 3 * 256 + 256
    assert found.layer_windows == ()


def test_fields_that_may_be_missing(tmp_path: Path) -> None:
    found = facts(tmp_path, **llama(attention__head_count_kv=None), **{"tokenizer.ggml.tokens": None})
    assert found.num_kv_heads == 4
    assert found.vocab_size == 3  # rows of the embedding
    assert facts(tmp_path, **llama(vocab_size=7)).vocab_size == 3  # whatever the metadata says
    assert facts(tmp_path, GGUF_TENSORS[1:], **llama(vocab_size=7)).vocab_size == 7
    assert facts(tmp_path, GGUF_TENSORS[1:]).vocab_size == 3  # tokens of the vocabulary
    assert facts(tmp_path, **llama(attention__key_length=32)).head_dim == 32


def test_heads_given_layer_by_layer_count_as_the_most(tmp_path: Path) -> None:
    assert facts(tmp_path, **llama(attention__head_count_kv=(1, 2))).num_kv_heads == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (llama(attention__sliding_window=16), (16, 16)),
        (llama(attention__sliding_window=64), ()),
        (llama(attention__sliding_window=0), ()),
        (llama(attention__sliding_window=16, attention__sliding_window_pattern=(True, False)), (16, None)),
        (llama(attention__sliding_window=16, attention__sliding_window_pattern=2), (16, None)),
    ],
)
def test_windows(tmp_path: Path, changes: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert facts(tmp_path, **changes).layer_windows == expected


def test_gemma_knows_its_own_pattern(tmp_path: Path) -> None:
    renamed = {key.replace("llama.", "gemma2."): value for key, value in GGUF_METADATA.items()}
    path = tmp_path / "gemma.gguf"
    changes = {"general.architecture": "gemma2", "gemma2.attention.sliding_window": 16}
    path.write_bytes(gguf_bytes(renamed | changes, GGUF_TENSORS))
    assert gguf_facts("gemma", [read_gguf_header(path)]).layer_windows == (16, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": None}, "does not give general.architecture"),
        ({"general.architecture": 3}, "does not give general.architecture"),
        (llama(block_count=None), "does not give llama.block_count"),
        (llama(block_count="2"), "gives llama.block_count as '2'"),
        (llama(block_count=20_000), "must be from 1 to 10,000"),
        (llama(attention__head_count=None), "does not give llama.attention.head_count"),
        (llama(attention__head_count=(0, 0)), "gives llama.attention.head_count as 0"),
        (llama(context_length=(1, 2)), "gives llama.context_length as an array"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        facts(tmp_path, **changes)


def test_file_without_tensors_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no tensors"):
        facts(tmp_path, tensors=[])


def test_vocabulary_must_be_somewhere(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="vocabulary's size nowhere"):
        facts(tmp_path, tensors=GGUF_TENSORS[1:], **{"tokenizer.ggml.tokens": None})
