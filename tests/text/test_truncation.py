"""Cut texts keep their frame, as `transformers` cuts them."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from quire.core.errors import InvalidRequest
from quire.text.special_tokens import SpecialTokens
from quire.text.tokenizer import Tokenizer
from quire.text.truncation import encode_truncated
from tests.text.vocabularies import byte_level, wordpiece

TEXT = "The quick brown fox jumps over the lazy dog, again and again."


@pytest.mark.parametrize("limit", [2, 3, 10, 1000])
def test_as_transformers_cuts(limit: int, tmp_path: Path) -> None:
    backend = wordpiece()
    backend.save(str(tmp_path / "tokenizer.json"))
    oracle = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    expected = oracle(TEXT, truncation=True, max_length=limit)["input_ids"]
    assert encode_truncated(Tokenizer(backend, SpecialTokens(), source="test"), TEXT, limit) == expected


def test_without_a_frame_the_start_stays() -> None:
    tokenizer = Tokenizer(byte_level(), SpecialTokens(), source="test")
    assert encode_truncated(tokenizer, TEXT, 5) == tokenizer.encode(TEXT)[:5]


def test_a_frame_that_does_not_fit_is_refused() -> None:
    tokenizer = Tokenizer(wordpiece(), SpecialTokens(), source="test")
    with pytest.raises(InvalidRequest, match="is 1, but the tokenizer alone adds 2 tokens"):
        encode_truncated(tokenizer, TEXT, 1)
