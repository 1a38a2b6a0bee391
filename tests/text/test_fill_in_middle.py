"""Markers of gaps, as vocabularies spell them."""

from pathlib import Path

import pytest
from tokenizers import AddedToken

from quire.text.fill_in_middle import FillInMiddle
from quire.text.load import load_tokenizer
from quire.text.tokenizer import Tokenizer
from tests.text import vocabularies


def with_tokens(folder: Path, *tokens: str) -> Tokenizer:
    backend = vocabularies.byte_level()
    backend.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    vocabularies.write_folder(folder, backend)
    return load_tokenizer(folder)


@pytest.mark.parametrize(
    "names",
    [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ],
)
def test_a_prompt_around_a_gap(tmp_path: Path, names: tuple[str, str, str]) -> None:
    tokenizer = with_tokens(tmp_path, *names)
    found = FillInMiddle.of(tokenizer)
    assert found is not None
    text = tokenizer.decode(
        found.prompt(tokenizer.encode("a = "), tokenizer.encode("\nb"), tokenizer.encode("1")),
        skip_special_tokens=False,
    )
    assert text == f"{names[0]}a = {names[1]}\nb{names[2]}1"
    assert found.ends == ()


def test_another_file_ends_an_answer(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<fim_pad>")
    found = FillInMiddle.of(tokenizer)
    assert found is not None
    assert found.ends == (tokenizer.token_to_id("<file_sep>"), tokenizer.token_to_id("<fim_pad>"))


def test_a_vocabulary_with_some_of_the_markers_has_none(tmp_path: Path) -> None:
    assert FillInMiddle.of(with_tokens(tmp_path, "<fim_prefix>", "<fim_middle>")) is None
