"""sentence-transformers' files, as they are found beside checkpoints."""

import json
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import CheckpointError, InvalidRequest
from quire.models.loading.sentence_settings import SentenceSettings, read_sentence_settings


def modules(*kinds: str, path: str = "1_Pooling") -> list[dict[str, Any]]:
    place = {"Pooling": path}
    return [{"idx": i, "path": place.get(kind, ""), "type": f"a.models.{kind}"} for i, kind in enumerate(kinds)]


def write(folder: Path, chain: Any, pooling: dict[str, Any], limits: dict[str, Any] | None = None) -> Path:
    (folder / "1_Pooling").mkdir()
    (folder / "modules.json").write_text(json.dumps(chain))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if limits is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps(limits))
    return folder


def test_a_checkpoint_without_them_leaves_everything_open(tmp_path: Path) -> None:
    assert read_sentence_settings(tmp_path) == SentenceSettings()
    assert read_sentence_settings(tmp_path / "model.gguf") == SentenceSettings()


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_poolings(tmp_path: Path, pooling: dict[str, Any], expected: str) -> None:
    write(tmp_path, modules("Transformer", "Pooling", "Normalize"), pooling)
    assert read_sentence_settings(tmp_path).pooling == expected


def test_limits(tmp_path: Path) -> None:
    limits = {"max_seq_length": 256, "do_lower_case": True}
    write(tmp_path, modules("Transformer", "Pooling"), {"pooling_mode": "cls"}, limits)
    assert read_sentence_settings(tmp_path) == SentenceSettings("cls", 256, True)


@pytest.mark.parametrize(
    ("chain", "pooling", "message"),
    [
        (modules("Pooling"), {"pooling_mode_max_tokens": True}, "asks for pooling_mode_max_tokens; quire has"),
        (modules("Pooling"), {"pooling_mode": "max"}, "asks for max; quire has"),
        (modules("Pooling"), {}, "asks for no pooling"),
        (
            modules("Pooling"),
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "asks for pooling_mode_cls_token and pooling_mode_mean_tokens",
        ),
        (modules("Transformer", "Dense", "Pooling"), {}, "has a module of type 'Dense'"),
        (modules("Pooling", path="../other"), {}, "points to '../other'"),
        (modules("Pooling", path="2_Pooling"), {}, "cannot read"),
        ({"a": 1}, {}, "must hold a list of modules"),
        ([1], {}, "must hold a list of modules"),
    ],
)
def test_what_would_embed_otherwise_is_refused(tmp_path: Path, chain: Any, pooling: Any, message: str) -> None:
    write(tmp_path, chain, pooling)
    with pytest.raises(CheckpointError, match=message):
        read_sentence_settings(tmp_path)


def test_a_dense_module_behind_pooling_is_refused(tmp_path: Path) -> None:
    write(tmp_path, modules("Transformer", "Pooling", "Dense"), {"pooling_mode": "mean"})
    with pytest.raises(CheckpointError, match="has a module of type 'Dense'"):
        read_sentence_settings(tmp_path)


def test_damaged_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[{")
    with pytest.raises(CheckpointError, match=r"modules\.json is not valid JSON"):
        read_sentence_settings(tmp_path)


def test_prompts_and_the_default(tmp_path: Path) -> None:
    file = tmp_path / "config_sentence_transformers.json"
    file.write_text(json.dumps({"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": "document"}))
    settings = read_sentence_settings(tmp_path)
    assert (settings.prompt(), settings.prompt("query")) == ("", "Q: ")
    assert (settings.prompt_for("passage", "query"), settings.prompt_for("x")) == ("Q: ", "")
    with pytest.raises(InvalidRequest, match="prompt_name is 'other'; it must be one of query, document"):
        settings.prompt("other")


@pytest.mark.parametrize(
    "config",
    [
        {"prompts": ["a"]},
        {"prompts": {"a": 5}},
        {"default_prompt_name": "a"},
        {"prompts": {str(number): "" for number in range(1001)}},
    ],
)
def test_prompts_that_cannot_be(tmp_path: Path, config: dict[str, Any]) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="prompt"):
        read_sentence_settings(tmp_path)


def test_prompts_that_are_not_pooled_are_refused(tmp_path: Path) -> None:
    write(tmp_path, modules("Transformer", "Pooling"), {"pooling_mode_mean_tokens": True, "include_prompt": False})
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "Q: ", "none": ""}}))
    settings = read_sentence_settings(tmp_path)
    assert settings.prompt("none") == ""
    with pytest.raises(InvalidRequest, match="include_prompt is false"):
        settings.prompt("query")


@pytest.mark.parametrize(
    ("config", "plain"),
    [
        ({}, False),
        ({"sentence_transformers": {"version": "5.0.0"}}, False),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, True),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, True),
    ],
)
def test_what_is_made_of_a_cross_encoders_number(tmp_path: Path, config: dict[str, Any], plain: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_sentence_settings(tmp_path).plain_scores is plain


def test_other_activations_are_refused(tmp_path: Path) -> None:
    config = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="makes scores by 'Tanh'"):
        read_sentence_settings(tmp_path)
