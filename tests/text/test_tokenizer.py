"""Encoding and decoding equal `transformers` on the same files, and what a text may not be is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import CheckpointError, InvalidRequest
from quire.text.from_folder import tokenizer_from_folder
from quire.text.special_tokens import SpecialTokens
from quire.text.tokenizer import Tokenizer
from tests.text.corpus import TEXTS
from tests.text.vocabularies import write_folder

KINDS = ("byte_level", "wordpiece", "metaspace")


def wrapped(backend: tokenizers.Tokenizer, **options: Any) -> Tokenizer:
    return Tokenizer(backend, SpecialTokens(), source="test", **options)


@pytest.mark.parametrize("kind", KINDS)
def test_round_trips_equal_transformers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, transformers: Any
) -> None:
    folder = write_folder(tmp_path, request.getfixturevalue(kind))
    ours = tokenizer_from_folder(folder)
    oracle = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        for special in (True, False):
            ids = ours.encode(text, add_special_tokens=special)
            assert ids == oracle.encode(text, add_special_tokens=special), text
            for skip in (True, False):
                assert ours.decode(ids, skip_special_tokens=skip) == oracle.decode(ids, skip_special_tokens=skip), text


def test_byte_level_gives_the_text_back(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = wrapped(byte_level)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@given(text=st.text())
def test_byte_level_gives_any_text_back(byte_level: tokenizers.Tokenizer, text: str) -> None:
    tokenizer = wrapped(byte_level)
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def test_batch_equals_one_by_one(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = wrapped(byte_level)
    assert tokenizer.encode_batch(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch([]) == []


def test_threads_share_it(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = wrapped(byte_level)
    alone = [tokenizer.encode(text) for text in TEXTS]

    def work(_: int) -> bool:
        ids = [tokenizer.encode(text) for text in TEXTS]
        return ids == alone and [tokenizer.decode(each, skip_special_tokens=False) for each in ids] == list(TEXTS)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(16)))


def test_lookups(byte_level: tokenizers.Tokenizer) -> None:
    end = byte_level.token_to_id("<|im_end|>")
    tool = byte_level.token_to_id("<tool>")
    assert end is not None
    assert tool is not None
    tokenizer = Tokenizer(byte_level, SpecialTokens(bos=1, eos=(end, 0), pad=0), source="test")
    assert tokenizer.id_to_token(end) == "<|im_end|>"
    assert tokenizer.token_to_id("<|im_end|>") == end
    assert tokenizer.token_to_id("nothing like it") is None
    assert tokenizer.is_special(end)
    assert not tokenizer.is_special(tool)
    assert tokenizer.vocab_size == len(byte_level.get_vocab())
    assert (tokenizer.eos_token_id, tokenizer.eos_token_ids) == (end, (end, 0))
    assert tokenizer.bos_token_id == 1
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, None)
    assert tokenizer.named_tokens() == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }


@pytest.mark.parametrize("token_id", [-1, 1 << 20, 1 << 40])
def test_ids_that_are_no_tokens_read_as_nothing(byte_level: tokenizers.Tokenizer, token_id: int) -> None:
    tokenizer = wrapped(byte_level)
    assert tokenizer.id_to_token(token_id) is None
    assert tokenizer.token_bytes(token_id) == b""
    assert tokenizer.decode([token_id, *tokenizer.encode("a b"), token_id]) == "a b"


def test_token_bytes_join_to_the_text(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = wrapped(byte_level)
    for text in TEXTS:
        assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()


def test_spans_are_where_tokens_stand(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = wrapped(byte_level)
    for text in TEXTS:
        tokens = tokenizer.encode(text)
        spans = tokenizer.spans(text, tokens)
        assert spans is not None
        assert len(spans) == len(tokens)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert tokenizer.spans(text, [*tokens, tokens[-1] if tokens else 0]) is None, "they are another text's"
    plain = "one two"
    assert [plain[a:b] for a, b in tokenizer.spans(plain, tokenizer.encode(plain)) or ()] == [
        tokenizer.decode([token]) for token in tokenizer.encode(plain)
    ]


def test_truncation_and_padding_of_the_file_are_left_out(byte_level: tokenizers.Tokenizer) -> None:
    backend = tokenizers.Tokenizer.from_str(byte_level.to_str())
    backend.enable_truncation(3)
    backend.enable_padding(length=10)
    assert wrapped(backend).encode("one two three four five") == byte_level.encode("one two three four five").ids


def test_a_text_that_is_too_long_is_refused(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = wrapped(byte_level, most_characters=10)
    assert tokenizer.encode("x" * 10)
    with pytest.raises(InvalidRequest, match="11 characters is longer than the 10"):
        tokenizer.encode("x" * 11)
    with pytest.raises(InvalidRequest):
        tokenizer.encode_batch(["x", "x" * 11])


def test_half_a_surrogate_pair_is_refused(byte_level: tokenizers.Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="surrogate pair at character 2"):
        wrapped(byte_level).encode("ab\ud83d")


def test_a_panic_in_the_library_is_a_refusal() -> None:
    """The regex engine gives up after ten million steps, and the library panics, which is no Exception."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"Ġ": 0}, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated")
    with pytest.raises(InvalidRequest, match="cannot be tokenized"):
        wrapped(backend, most_characters=20_000_000).encode(" " * 10_500_000 + "x")


def test_a_decoder_that_cannot_stream_is_refused(byte_level: tokenizers.Tokenizer) -> None:
    backend = tokenizers.Tokenizer.from_str(byte_level.to_str())
    backend.decoder = tokenizers.decoders.CTC()
    with pytest.raises(CheckpointError, match="CTC"):
        wrapped(backend)
