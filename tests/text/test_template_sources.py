"""Chat templates are found wherever checkpoints have put them."""

import json
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import CheckpointError, ConfigError
from quire.models.loading.gguf_header import read_gguf_header
from quire.text.template_sources import template_in_file, templates_in_folder, templates_in_gguf
from tests.text.vocabularies import write_gguf


def write_json(path: Path, **content: Any) -> None:
    path.write_text(json.dumps(content))


def test_tokenizer_config_holds_one(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", chat_template="x")
    assert templates_in_folder(tmp_path) == {"default": "x"}


def test_tokenizer_config_holds_several(tmp_path: Path) -> None:
    entries = [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "y"}]
    write_json(tmp_path / "tokenizer_config.json", chat_template=entries)
    assert templates_in_folder(tmp_path) == {"default": "x", "tool_use": "y"}


def test_files_of_their_own_win(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", chat_template="x")
    (tmp_path / "chat_template.jinja").write_text("y ü")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("z")
    assert templates_in_folder(tmp_path) == {"default": "y ü", "rag": "z"}


def test_processors_keep_theirs_apart(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", eos_token="</s>")
    write_json(tmp_path / "chat_template.json", chat_template="x")
    assert templates_in_folder(tmp_path) == {"default": "x"}


def test_a_base_model_has_none(tmp_path: Path) -> None:
    assert templates_in_folder(tmp_path) == {}


@pytest.mark.parametrize("given", [3, [{"name": "default"}], {"default": "x"}, ["x"]])
def test_nonsense_is_refused(given: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", chat_template=given)
    with pytest.raises(CheckpointError, match="neither a text nor a list"):
        templates_in_folder(tmp_path)


def test_gguf_holds_one_and_others_by_name(tmp_path: Path) -> None:
    metadata = {
        "tokenizer.chat_template": "x",
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "y",
    }
    header = read_gguf_header(write_gguf(tmp_path / "a.gguf", metadata))
    assert templates_in_gguf(header) == {"default": "x", "tool_use": "y"}
    assert templates_in_gguf(read_gguf_header(write_gguf(tmp_path / "b.gguf", {"general.name": "x"}))) == {}


def test_gguf_nonsense_is_refused(tmp_path: Path) -> None:
    header = read_gguf_header(write_gguf(tmp_path / "a.gguf", {"tokenizer.chat_template": 3}))
    with pytest.raises(CheckpointError, match="no text"):
        templates_in_gguf(header)


def test_a_user_s_file(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("x\n")
    assert template_in_file(tmp_path / "mine.jinja") == {"default": "x\n"}
    (tmp_path / "binary.jinja").write_bytes(b"\xff\x00")
    for name, message in (("missing.jinja", "cannot read"), ("binary.jinja", "not UTF-8")):
        with pytest.raises(ConfigError, match=message):
            template_in_file(tmp_path / name)
