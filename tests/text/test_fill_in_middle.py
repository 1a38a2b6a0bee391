"""Markers of gaps, as vocabularies spell them."""

from pathlib import Path

import pytest
from tokenizers import AddedToken, processors

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.text.fill_in_middle import FillInMiddle
from quire.text.load import load_tokenizer
from quire.text.tokenizer import Tokenizer
from tests.text import vocabularies


def with_tokens(folder: Path, *tokens: str, begin: str | None = None) -> Tokenizer:
    """`begin` stands before every text."""
    backend = vocabularies.byte_level()
    backend.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    if begin is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, backend.token_to_id(begin))]
        )
    vocabularies.write_folder(folder, backend, **({} if begin is None else {"bos_token": begin}))
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


def test_a_prompt_begins_as_texts_do(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, "<fim_prefix>", "<fim_suffix>", "<fim_middle>", begin="<|endoftext|>")
    found = FillInMiddle.of(tokenizer)
    assert found is not None
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id
    assert found.prompt([1], [2], context=[3])[:2] == [tokenizer.bos_token_id, 3]
    assert found.prompt([1], [2], begins=False)[0] == tokenizer.token_to_id("<fim_prefix>")


def test_mistrals_suffix_comes_first_and_the_answer_goes_on_with_the_prefix(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, "[PREFIX]", "[MIDDLE]", "[SUFFIX]")
    found = FillInMiddle.of(tokenizer)
    assert found is not None
    prompt = found.prompt(tokenizer.encode("a = "), tokenizer.encode("b"), tokenizer.encode("1"))
    assert tokenizer.decode(prompt, skip_special_tokens=False) == "[SUFFIX]b[PREFIX]a = 1"


def test_answers_end_where_the_gap_does(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, "▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>")
    found = FillInMiddle.of(tokenizer)
    assert found is not None
    end = tokenizer.token_to_id("▁<EOT>")
    assert found.ending(SamplingParams(stop_token_ids=(3,))).stop_token_ids == (3, end)


def test_a_vocabulary_with_some_of_the_markers_has_none(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, "<fim_prefix>", "<fim_middle>")
    assert FillInMiddle.of(tokenizer) is None
    with pytest.raises(InvalidRequest, match="no tokens for filling gaps") as caught:
        FillInMiddle.needed(tokenizer)
    assert caught.value.field == "suffix"
