"""Folders as they are found: what the small files beside tokenizer.json say is kept, as `transformers` keeps it."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from tokenizers import Regex, pre_tokenizers

from quire.core.errors import CheckpointError
from quire.text.from_folder import tokenizer_from_folder
from tests.text import vocabularies
from tests.text.corpus import TEXTS
from tests.text.vocabularies import write_folder

ADDED = {"content": "<think>", "lstrip": False, "rstrip": True, "normalized": False, "single_word": False}

CONFIGS: dict[str, dict[str, Any]] = {
    "names alone": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
    "flags that tokenizer.json overrules": {"bos_token": "<|im_start|>", "add_bos_token": True},
    "a name that was no special token": {"eos_token": "<|im_end|>", "pad_token": "the"},
    "tokens with their manners": {
        "pad_token": {"__type": "AddedToken", "content": "<pad>", "lstrip": True, "special": True}
    },
    "more special tokens": {"eos_token": "<|im_end|>", "extra_special_tokens": ["<extra>", "<more>"]},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_config_means_what_transformers_makes_of_it(
    config: dict[str, Any], byte_level: tokenizers.Tokenizer, tmp_path: Path, transformers: Any
) -> None:
    folder = write_folder(tmp_path, byte_level, **config)
    ours, oracle = tokenizer_from_folder(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.bos_token_id == oracle.bos_token_id
    assert ours.eos_token_id == oracle.eos_token_id
    assert ours.pad_token_id == oracle.pad_token_id
    assert set(oracle.all_special_ids) <= ours.pieces.special_ids
    for text in (*TEXTS, "a <pad> b", "x<extra>y <more>", "the end of the story"):
        ids = ours.encode(text)
        assert ids == oracle.encode(text), text
        assert ours.decode(ids) == oracle.decode(ids, skip_special_tokens=True)


def test_tokens_only_the_config_knows_are_added(
    byte_level: tokenizers.Tokenizer, tmp_path: Path, transformers: Any
) -> None:
    size = byte_level.get_vocab_size()
    decoder = {str(size): {**ADDED, "special": False}, str(size + 1): {**ADDED, "content": "</think>", "special": True}}
    folder = write_folder(tmp_path, byte_level, added_tokens_decoder=decoder)
    ours, oracle = tokenizer_from_folder(folder), transformers.AutoTokenizer.from_pretrained(folder)
    text = "a <think>   b</think> c"
    assert ours.encode(text) == oracle.encode(text)
    assert (ours.token_to_id("<think>"), ours.token_to_id("</think>")) == (size, size + 1)
    assert not ours.is_special(size)
    assert ours.is_special(size + 1)


def test_special_tokens_map_is_for_older_checkpoints(
    byte_level: tokenizers.Tokenizer, tmp_path: Path, transformers: Any
) -> None:
    older = write_folder(tmp_path / "older", byte_level, eos_token="<|im_end|>", pad_token="<|im_end|>")
    newer = write_folder(tmp_path / "newer", byte_level, eos_token="<|im_end|>", added_tokens_decoder={})
    for folder, expected in ((older, ("<|endoftext|>", "<|im_start|>", 2)), (newer, ("<|im_end|>", None, None))):
        (folder / "special_tokens_map.json").write_text(
            json.dumps({"eos_token": "<|endoftext|>", "bos_token": {"content": "<|im_start|>"}})
        )
        ours, oracle = tokenizer_from_folder(folder), transformers.AutoTokenizer.from_pretrained(folder)
        named = ours.named_tokens()
        assert (named.get("eos_token"), named.get("bos_token"), ours.pad_token_id) == expected
        assert (oracle.eos_token, oracle.bos_token, oracle.pad_token_id) == expected


def test_added_tokens_json_is_for_older_checkpoints(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    folder, size = write_folder(tmp_path, byte_level), byte_level.get_vocab_size()
    (folder / "added_tokens.json").write_text(json.dumps({"<b>": size + 1, "<a>": size}))
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.encode("<a><b>") == [size, size + 1]


@pytest.mark.parametrize(("given", "expected"), [(2, (2,)), ([0, 2], (2, 0)), (None, (2,)), ([0, 1], (2, 0, 1))])
def test_generation_config_adds_ends(
    given: Any, expected: tuple[int, ...], byte_level: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    assert byte_level.token_to_id("<|im_end|>") == 2
    folder = write_folder(tmp_path, byte_level, eos_token="<|im_end|>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
    assert tokenizer_from_folder(folder).eos_token_ids == expected


def test_generation_config_with_nonsense_is_refused(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level)
    (folder / "generation_config.json").write_text('{"eos_token_id": "two"}')
    with pytest.raises(CheckpointError, match=r"generation_config.json gives eos_token_id as 'two'"):
        tokenizer_from_folder(folder)


def test_tokenizer_json_alone_is_enough(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    byte_level.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.encode("Hello") == byte_level.encode("Hello").ids
    assert tokenizer.special.ids() == ()


def test_a_pattern_that_long_runs_of_spaces_make_slow_is_replaced(tmp_path: Path) -> None:
    """As DeepSeek's files have it; with the original pattern this text takes minutes."""
    original = vocabularies.byte_level(pre_tokenizers.Split(Regex(r"\s+$"), "isolated"))
    folder = write_folder(tmp_path, original)
    tokenizer = tokenizer_from_folder(folder)
    for text in TEXTS:
        assert tokenizer.encode(text) == original.encode(text).ids, text
    assert tokenizer.decode(tokenizer.encode(" " * 200_000 + "x")) == " " * 200_000 + "x"


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither tokenizer.json nor tokenizer.model.*save_pretrained"):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"model": {"type": "Magic"}}', b"\xff\xfe"])
def test_broken_tokenizer_json_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer.json is no tokenizer that can be read"):
        tokenizer_from_folder(tmp_path)


def test_broken_token_list_is_refused(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level, added_tokens_decoder={"one": ADDED})
    with pytest.raises(CheckpointError, match="lists tokens that cannot be added"):
        tokenizer_from_folder(folder)


# --- tokenizer.model -------------------------------------------------------------------------------------------------

SPM_OPTIONS: dict[str, dict[str, Any]] = {
    "as Llama 2": {},
    "without a space in front, as Gemma": {"add_dummy_prefix": False},
    "normalised": {"normalization_rule_name": "nmt_nfkc"},
    "without bytes": {"byte_fallback": False},
    "with long runs of spaces": {"user_defined_symbols": ["<tool>", "▁▁▁▁", "▁▁"], "add_dummy_prefix": False},
}


@pytest.mark.parametrize("options", SPM_OPTIONS.values(), ids=SPM_OPTIONS)
def test_sentencepiece_gives_its_own_ids(options: dict[str, Any], tmp_path: Path) -> None:
    model = vocabularies.sentencepiece_model(**options)
    (tmp_path / "tokenizer.model").write_bytes(model)
    ours = tokenizer_from_folder(tmp_path)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in TEXTS:
        # SentencePiece does not look for control tokens in a text, and puts no space behind its own symbols.
        if "<|" in text or "<tool>" in text or "\x00" in text:
            continue
        # The library normalises \r\n as one character, SentencePiece as two.
        if "\r" in text and "normalization_rule_name" in options:
            continue
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == oracle.encode(text), text
        if oracle.unk_id() not in ids:
            assert ours.decode(ids) == oracle.decode(ids), text


def test_sentencepiece_puts_its_tokens_around(sentencepiece_model: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model)
    plain = tokenizer_from_folder(tmp_path)
    assert plain.named_tokens() == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert plain.encode("a")[0] == plain.bos_token_id
    config = {"add_bos_token": False, "add_eos_token": True, "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    framed = tokenizer_from_folder(tmp_path)
    assert framed.encode("a") == [*plain.encode("a", add_special_tokens=False), framed.token_to_id("<|im_end|>")]


def test_sentencepiece_of_another_kind_is_refused(tmp_path: Path) -> None:
    model = vocabularies.sentencepiece_model(model_type="unigram", vocab_size=520)
    (tmp_path / "tokenizer.model").write_bytes(model)
    with pytest.raises(CheckpointError, match="no SentencePiece model of the BPE kind"):
        tokenizer_from_folder(tmp_path)


def test_sentencepiece_that_removes_spaces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(vocabularies.sentencepiece_model(remove_extra_whitespaces=True))
    with pytest.raises(CheckpointError, match="removes extra spaces"):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 100, 5000])
def test_damaged_sentencepiece_is_refused(cut: int, sentencepiece_model: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model[:cut])
    with pytest.raises(CheckpointError, match=r"SentencePiece model"):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize(
    ("names", "expected"), [(["input_ids", "attention_mask"], 0), (["input_ids", "token_type_ids"], 1), (None, 1)]
)
def test_models_that_take_no_token_types_are_told_none(tmp_path: Path, names: list[str] | None, expected: int) -> None:
    config = {} if names is None else {"model_input_names": names}
    folder = write_folder(tmp_path, vocabularies.wordpiece(), **config)
    assert tokenizer_from_folder(folder).pair_frame().second_type == expected
