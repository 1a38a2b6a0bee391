"""Text given out token by token is the text of all tokens at once, at any split, and never half a character."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders

from quire.core.errors import CheckpointError
from quire.text.pieces import REPLACEMENT
from quire.text.special_tokens import SpecialTokens
from quire.text.tokenizer import Tokenizer
from tests.text import vocabularies
from tests.text.corpus import TEXTS
from tests.text.cost import lines_run

SPM = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
GEMMA = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
DECODERS: dict[str, Any] = {
    "byte level": decoders.ByteLevel(),
    "byte level in a sequence": decoders.Sequence([decoders.ByteLevel()]),
    "llama": SPM,
    "gemma": GEMMA,
    "three leading spaces": decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 3, 0)]),
    "strip each token": decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]),
    "metaspace": decoders.Metaspace(),
    "metaspace without prefix": decoders.Metaspace(prepend_scheme="never"),
    "metaspace behind bytes": decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]),
    "wordpiece": decoders.WordPiece(),
    "wordpiece as it is": decoders.WordPiece(cleanup=False),
    "none": None,
}

# Tokens that mean something to one decoder or another, whole characters and parts of them.
WORDS = ["a", "b", "▁", "▁a", "▁▁", "a▁", "▁a▁b", "##c", "##", ".", "?", "n't", "'s", "é", "漢", "👍", "Ġ", "Ġx", "Ċ"]
BYTE_LETTERS = list(tokenizers.pre_tokenizers.ByteLevel.alphabet())
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPLIT_EMOJI = ["ðŁ", "ĳ", "į", "ðŁĳ", "Ĥ¬", "âĤ"]
ADDED = [
    AddedToken("<s>", special=True),
    AddedToken("<pad>", special=True),
    AddedToken("<mask>", special=False, lstrip=True, rstrip=True),
    AddedToken("two words", special=False),
    AddedToken("日本", special=False),
]
VOCABULARY = list(dict.fromkeys([*WORDS, *BYTE_LETTERS, *BYTES, *SPLIT_EMOJI]))


def backend_with(decoder: Any) -> tokenizers.Tokenizer:
    vocabulary = {token: token_id for token_id, token in enumerate(VOCABULARY)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
    backend.add_tokens(ADDED)
    backend.add_special_tokens([token for token in ADDED if token.special])
    if decoder is not None:
        backend.decoder = decoder
    return backend


BACKENDS = {name: backend_with(decoder) for name, decoder in DECODERS.items()}
TOKENIZERS = {
    name: Tokenizer(backend, SpecialTokens(), source=name, most_characters=10_000_000)
    for name, backend in BACKENDS.items()
}
IDS = st.lists(st.integers(0, len(VOCABULARY) + len(ADDED) + 2), max_size=30)
# Half of all ids would otherwise be bytes, which seldom make characters.
TEXT_IDS = st.lists(st.sampled_from([*range(len(WORDS)), *range(len(VOCABULARY), len(VOCABULARY) + len(ADDED))]))


def streamed(tokenizer: Tokenizer, ids: Sequence[int], *, skip: bool, prompt: Sequence[int] = ()) -> str:
    detokenizer = tokenizer.detokenizer(skip_special_tokens=skip, prompt=prompt)
    return "".join([detokenizer.push(token_id) for token_id in ids]) + detokenizer.flush()


def has_broken_run(ids: Sequence[int]) -> bool:
    """Whether a run of byte tokens is no valid UTF-8, in which case the library replaces whole characters too."""
    run = b""
    names = [BACKENDS["llama"].id_to_token(token_id) for token_id in ids]
    for name in [*(name for name in names if name is not None), "end"]:
        if name in BYTES:
            run += bytes.fromhex(name[3:5])
            continue
        try:
            run.decode()
        except UnicodeDecodeError:
            return True
        run = b""
    return False


def without_specials(ids: Sequence[int], skip: bool) -> list[int]:
    special = TOKENIZERS["llama"].pieces.special_ids
    return [token_id for token_id in ids if not (skip and token_id in special)]


@pytest.mark.parametrize("name", DECODERS)
@given(ids=IDS | TEXT_IDS, skip=st.booleans())
def test_stream_equals_the_library_at_once(name: str, ids: list[int], skip: bool) -> None:
    got = streamed(TOKENIZERS[name], ids, skip=skip)
    whole = BACKENDS[name].decode(ids, skip_special_tokens=skip)
    fallback = name in ("llama", "gemma", "metaspace behind bytes")
    if not (fallback and has_broken_run(without_specials(ids, skip))):
        assert got == whole
    else:
        assert REPLACEMENT in got
        assert len(got) <= len(whole)


@pytest.mark.parametrize("name", DECODERS)
@given(ids=IDS, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_any_split_gives_the_same_text(name: str, ids: list[int], cuts: list[int]) -> None:
    tokenizer = TOKENIZERS[name]
    detokenizer = tokenizer.detokenizer()
    edges = [0, *sorted(cuts), len(ids)]
    parts = [detokenizer.extend(ids[start:end]) for start, end in pairwise(edges)]
    assert "".join(parts) + detokenizer.flush() == tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["byte level", "llama"])
@given(text=st.text(max_size=20))
def test_no_part_of_a_character_is_given_out(name: str, text: str) -> None:
    """Text spelled byte by byte comes out whole, each character with its last byte."""
    spelled = BYTES if name == "llama" else sorted(BYTE_LETTERS, key=_byte_of)
    ids = [VOCABULARY.index(spelled[byte]) for byte in text.encode()]
    detokenizer = TOKENIZERS[name].detokenizer(prompt=[0])
    out = ""
    for count, token_id in enumerate(ids, start=1):
        out += detokenizer.push(token_id)
        assert out == text.encode()[:count].decode(errors="ignore")
    assert out + detokenizer.flush() == text


def _byte_of(letter: str) -> int:
    return TOKENIZERS["byte level"].token_bytes(VOCABULARY.index(letter))[0]


@pytest.mark.parametrize("name", DECODERS)
@given(prompt=TEXT_IDS, ids=TEXT_IDS, skip=st.booleans())
def test_text_behind_a_prompt_is_what_the_whole_adds(name: str, prompt: list[int], ids: list[int], skip: bool) -> None:
    tokenizer = TOKENIZERS[name]
    shown = tokenizer.detokenizer(skip_special_tokens=skip).extend(prompt)
    got = streamed(tokenizer, ids, skip=skip, prompt=prompt)
    assert shown + got == tokenizer.decode([*prompt, *ids], skip_special_tokens=skip)


def test_a_character_begun_by_the_prompt_is_finished_behind_it() -> None:
    tokenizer = TOKENIZERS["byte level"]
    prompt, ids = [VOCABULARY.index("ðŁ")], [VOCABULARY.index("ĳ"), VOCABULARY.index("į")]
    assert streamed(tokenizer, ids, skip=True, prompt=prompt) == "👍"


def test_whole_characters_of_a_broken_byte_run_stay() -> None:
    tokenizer = TOKENIZERS["llama"]
    ids = [VOCABULARY.index(BYTES[byte]) for byte in "é".encode() + b"\xff\xe6"]
    assert streamed(tokenizer, ids, skip=True) == f"é{REPLACEMENT}{REPLACEMENT}"


def test_flush_is_for_the_end_only() -> None:
    detokenizer = TOKENIZERS["byte level"].detokenizer()
    assert detokenizer.push(VOCABULARY.index("ðŁ")) == ""
    assert detokenizer.flush() == REPLACEMENT
    assert detokenizer.flush() == ""


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.BPEDecoder(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 1)]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
        decoders.Sequence([decoders.Fuse(), decoders.Replace("a", "b")]),
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0), decoders.Strip("a", 1, 0)]),
    ],
)
def test_decoders_that_look_ahead_are_refused(decoder: Any) -> None:
    with pytest.raises(CheckpointError, match="cannot stream"):
        Tokenizer(backend_with(decoder), SpecialTokens(), source="test")


@pytest.mark.parametrize("kind", ["byte_level", "wordpiece", "metaspace"])
def test_trained_vocabularies_stream(kind: str, request: pytest.FixtureRequest) -> None:
    backend = request.getfixturevalue(kind)
    tokenizer = Tokenizer(backend, SpecialTokens(), source=kind)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        for skip in (True, False):
            assert streamed(tokenizer, ids, skip=skip) == backend.decode(ids, skip_special_tokens=skip)


def test_the_cost_of_a_token_does_not_grow(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = Tokenizer(byte_level, SpecialTokens(), source="test")
    ids = tokenizer.encode("".join(vocabularies.TRAINING))
    tokenizer.decode(ids)  # the pieces of all tokens are known from here on
    once, often = (lines_run(tokenizer.detokenizer().extend, ids * times) for times in (1, 10))
    assert once < 30 * len(ids)
    assert often < 10.1 * once


def test_special_tokens_may_be_shown_one_by_one(byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = Tokenizer(byte_level, SpecialTokens(), source="a test")
    start, end = (byte_level.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>"))
    said = [start, *tokenizer.encode("Hi", add_special_tokens=False), end]
    assert tokenizer.detokenizer(shown=[end]).extend(said) == "Hi<|im_end|>"
    assert tokenizer.detokenizer().extend(said) == "Hi"
    assert tokenizer.detokenizer(skip_special_tokens=False, shown=[end]).extend(said) == "<|im_start|>Hi<|im_end|>"
