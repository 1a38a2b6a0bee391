"""Words that a causal LM scores by: how they are looked up in vocabularies of each kind, and what has none."""

import json
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.answer_words import answer_token_ids, describe_causal_lm, scored_by_answer
from quire.models.registry import describe

SHAPE: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForSequenceClassification"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}


def vocabulary(folder: Path, tokenizer: dict[str, Any]) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.parametrize(
    "vocab", [{"no": 3, "yes": 4}, [["<unk>", 0.0], ["a", -1.0], ["b", -2.0], ["no", -2.5], ["yes", -3.0]]]
)
def test_ids_are_those_of_the_vocabulary(vocab: object, tmp_path: Path) -> None:
    folder = vocabulary(tmp_path, {"model": {"vocab": vocab}, "added_tokens": [{"content": "<yes>", "id": 9}]})
    assert answer_token_ids(("no", "yes"), folder, "config.json") == (3, 4)
    assert answer_token_ids(("<yes>",), folder, "config.json") == (9,)


@pytest.mark.parametrize("broken", [{}, {"model": {"vocab": [1]}}, {"model": {"vocab": {}}, "added_tokens": [{}]}])
def test_a_vocabulary_without_tokens(broken: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        answer_token_ids(("yes",), vocabulary(tmp_path, broken), "config.json")


def test_of_an_untied_head_two_rows_are_kept() -> None:
    spec = scored_by_answer(describe_causal_lm(SHAPE, "config.json", "auto"), ("no", "yes"), (7, 5), "config.json")
    assert not spec.generates
    [rows] = [tensor for tensor in spec.tensors() if tensor.name == "lm_head.weight"]
    assert rows.shape == (2, 32)
    assert rows.share is not None
    assert rows.share.rows is not None
    assert rows.share.rows.places() == [7, 5]


def test_of_a_tied_head_nothing_is_loaded_twice() -> None:
    whole = describe_causal_lm(SHAPE | {"tie_word_embeddings": True}, "config.json", "auto")
    spec = scored_by_answer(whole, ("yes",), (5,), "config.json")
    assert [tensor.name for tensor in spec.tensors()] == [tensor.name for tensor in whole.tensors()]


def test_models_without_a_head() -> None:
    encoder = describe(SHAPE | {"architectures": ["Qwen3Model"]}, "config.json")
    with pytest.raises(CheckpointError, match="this Qwen3Model has none; leave it out"):
        scored_by_answer(encoder, ("yes",), (5,), "config.json")


def test_a_tokenizer_of_another_model() -> None:
    spec = describe_causal_lm(SHAPE, "config.json", "auto")
    with pytest.raises(CheckpointError, match="token 100 lies beyond the 100 of the model"):
        scored_by_answer(spec, ("yes",), (100,), "config.json")
