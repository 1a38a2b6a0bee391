"""One path leads to the tokenizer and the chat template, whatever it is the path of."""

from pathlib import Path

import pytest
import tokenizers

from quire.core.errors import CheckpointError
from quire.text.load import load_chat_template, load_tokenizer
from quire.text.template_pool import TemplatePool
from tests.text.vocabularies import bpe_metadata, write_folder, write_gguf

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
USER = [{"role": "user", "content": "Hi"}]
NAMES = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


@pytest.fixture
def gguf(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> Path:
    metadata = bpe_metadata(byte_level, "gpt-2") | {"tokenizer.chat_template": TEMPLATE}
    return write_gguf(tmp_path / "model.gguf", metadata)


def prompt_at(path: Path, process: TemplatePool, file: Path | None = None) -> tuple[str, list[int]]:
    tokenizer = load_tokenizer(path)
    prompt = load_chat_template(path, tokenizer, process, file=file).render(USER)
    return prompt, tokenizer.encode(prompt)


def test_all_roads_lead_to_the_same_prompt(
    gguf: Path, byte_level: tokenizers.Tokenizer, template_pool: TemplatePool, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "folder", byte_level, chat_template=TEMPLATE, **NAMES)
    expected = "<|im_start|>Hi<|im_end|>", byte_level.encode("<|im_start|>Hi<|im_end|>").ids
    assert prompt_at(folder, template_pool) == expected
    assert prompt_at(gguf, template_pool) == expected
    assert prompt_at(gguf.parent, template_pool) == expected


def test_a_folder_s_own_tokenizer_wins(gguf: Path, wordpiece: tokenizers.Tokenizer) -> None:
    write_folder(gguf.parent, wordpiece)
    assert load_tokenizer(gguf.parent).token_to_id("[CLS]") is not None


def test_a_user_s_template_wins(gguf: Path, template_pool: TemplatePool, tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("mine: {{ messages[0].content }}")
    assert prompt_at(gguf, template_pool, tmp_path / "mine.jinja")[0] == "mine: Hi"


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither tokenizer.json nor"):
        load_tokenizer(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    for path in (tmp_path / "nowhere", tmp_path / "model.safetensors"):
        with pytest.raises(CheckpointError):
            load_tokenizer(path)
