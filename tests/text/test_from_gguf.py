"""A vocabulary written into GGUF metadata and read back gives the ids it gave before."""

import os
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from quire.core.errors import CheckpointError
from quire.models.loading.default_model import default_model_path
from quire.models.loading.gguf_header import read_gguf_header
from quire.text.from_gguf import tokenizer_from_gguf
from quire.text.load import load_tokenizer
from quire.text.spm_vocabulary import SpmVocabulary, merges_of
from quire.text.tokenizer import Tokenizer
from tests.text import vocabularies
from tests.text.corpus import PLAIN, TEXTS

CUT_BY_TOKENIZER_JSON: dict[str, list[Any]] = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def from_metadata(folder: Path, metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(read_gguf_header(vocabularies.write_gguf(folder / "vocab.gguf", metadata)))


def assert_same(ours: Tokenizer, original: tokenizers.Tokenizer) -> None:
    for text in TEXTS:
        for special in (True, False):
            ids = ours.encode(text, add_special_tokens=special)
            assert ids == original.encode(text, add_special_tokens=special).ids, text
            for skip in (True, False):
                assert ours.decode(ids, skip_special_tokens=skip) == original.decode(ids, skip_special_tokens=skip)


# --- BPE -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre", CUT_BY_TOKENIZER_JSON)
def test_bpe_gives_the_same_ids(pre: str, tmp_path: Path) -> None:
    original = vocabularies.byte_level()
    original.pre_tokenizer = pre_tokenizers.Sequence(CUT_BY_TOKENIZER_JSON[pre])
    assert_same(from_metadata(tmp_path, vocabularies.bpe_metadata(original, pre)), original)


def test_bpe_that_composes_characters(tmp_path: Path) -> None:
    split = pre_tokenizers.Split(Regex(QWEN2), "isolated")
    original = vocabularies.byte_level(split, normalizer=normalizers.NFC())
    assert_same(from_metadata(tmp_path, vocabularies.bpe_metadata(original, "qwen2")), original)


def test_bpe_special_tokens(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    tokenizer = from_metadata(tmp_path, vocabularies.bpe_metadata(byte_level, "gpt-2"))
    assert tokenizer.named_tokens() == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert {tokenizer.id_to_token(token_id) for token_id in tokenizer.eos_token_ids} == {"<|im_end|>", "<|endoftext|>"}
    assert tokenizer.is_special(tokenizer.eos_token_ids[0])
    tool = tokenizer.token_to_id("<tool>")
    assert tool is not None
    assert tokenizer.encode("x<tool>y")[1] == tool
    assert not tokenizer.is_special(tool)


@pytest.mark.parametrize(
    ("flags", "before", "behind"),
    [
        ({}, [], []),
        ({"add_bos_token": True}, ["<|im_start|>"], []),
        ({"add_eos_token": True}, [], ["<|im_end|>"]),
        ({"add_bos_token": True, "add_eos_token": True}, ["<|im_start|>"], ["<|im_end|>"]),
    ],
)
def test_bpe_tokens_around_a_text(
    flags: dict[str, bool], before: list[str], behind: list[str], byte_level: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    metadata = vocabularies.bpe_metadata(byte_level, "gpt-2")
    tokenizer = from_metadata(tmp_path, metadata | {f"tokenizer.ggml.{name}": flag for name, flag in flags.items()})
    around = [[byte_level.token_to_id(token) for token in tokens] for tokens in (before, behind)]
    assert tokenizer.encode("a b") == [*around[0], *byte_level.encode("a b").ids, *around[1]]


def test_variants_of_llama3_put_bos_before(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    tokenizer = from_metadata(tmp_path, vocabularies.bpe_metadata(byte_level, "llama-bpe"))
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id


def test_harmony_goes_on_behind_end(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    original = tokenizers.Tokenizer.from_str(byte_level.to_str())
    ends = ("<|end|>", "<|return|>", "<|call|>")
    original.add_special_tokens(list(ends))
    metadata = vocabularies.bpe_metadata(original, "gpt-4o")
    types = metadata["tokenizer.ggml.token_type"]
    for token in ends:
        types[original.token_to_id(token)] = vocabularies.CONTROL_TYPE
    found = [from_metadata(tmp_path, metadata).id_to_token(i) for i in from_metadata(tmp_path, metadata).eos_token_ids]
    assert "<|return|>" in found
    assert "<|end|>" not in found


def test_a_colon_in_the_bos_token(tmp_path: Path) -> None:
    original = vocabularies.byte_level()
    original.add_special_tokens(["<|x:bos y|>"])
    metadata = vocabularies.bpe_metadata(original, "gpt-2")
    bos = original.token_to_id("<|x:bos y|>")
    metadata |= {"tokenizer.ggml.bos_token_id": bos, "tokenizer.ggml.add_bos_token": True}
    assert from_metadata(tmp_path, metadata).encode("a")[0] == bos


# --- SentencePiece ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spm(sentencepiece_model: bytes, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return from_metadata(tmp_path_factory.mktemp("spm"), vocabularies.spm_metadata(sentencepiece_model))


@pytest.fixture(scope="module")
def processor(sentencepiece_model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model)


def test_spm_gives_the_same_ids(spm: Tokenizer, processor: sentencepiece.SentencePieceProcessor) -> None:
    for text in PLAIN:
        if "<" in text or "\x00" in text:
            continue
        ids = spm.encode(text)
        assert ids == [processor.bos_id(), *processor.encode(text)], text
        assert spm.decode(ids) == text


@given(text=st.text(alphabet="abcde =-aeé漢👍\t\n") | st.text(alphabet="a "))
def test_spm_gives_the_same_ids_for_any_text(
    spm: Tokenizer, processor: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    ids = spm.encode(text, add_special_tokens=False)
    assert ids == processor.encode(text)
    assert spm.decode(ids) == text


def test_spm_equals_transformers(sentencepiece_model: bytes, spm: Tokenizer, tmp_path: Path, transformers: Any) -> None:
    """Its converter reads the vocabulary on its own; the prefix space is set as the older Llama tokenizers have it."""
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model)
    oracle = transformers.LlamaTokenizer.from_pretrained(tmp_path, legacy=True).backend_tokenizer
    oracle.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    oracle.pre_tokenizer = None
    for text in PLAIN:
        assert spm.encode(text, add_special_tokens=False) == oracle.encode(text, add_special_tokens=False).ids, text


def test_spm_special_tokens(spm: Tokenizer) -> None:
    assert spm.named_tokens() == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    # As llama.cpp has it, and Llama's first tokenizers: a space is put before whatever follows a special token.
    assert spm.decode(spm.encode("<|im_start|>Hi<tool>there")) == "Hi<tool> there"
    assert spm.decode(spm.encode("Hi<|im_end|>"), skip_special_tokens=False) == "<s> Hi<|im_end|>"


def test_spm_without_a_space_in_front(sentencepiece_model: bytes, tmp_path: Path) -> None:
    metadata = vocabularies.spm_metadata(sentencepiece_model) | {"tokenizer.ggml.add_space_prefix": False}
    tokenizer = from_metadata(tmp_path, metadata)
    assert tokenizer.decode(tokenizer.encode(" a b")) == " a b"
    first = tokenizer.id_to_token(tokenizer.encode("a b", add_special_tokens=False)[0])
    assert first is not None
    assert not first.startswith("▁")


def test_spm_with_merges_written_out(sentencepiece_model: bytes, tmp_path: Path) -> None:
    metadata = vocabularies.spm_metadata(sentencepiece_model) | {"tokenizer.ggml.add_space_prefix": False}
    original = from_metadata(tmp_path, metadata)
    vocabulary = SpmVocabulary(
        pieces=metadata["tokenizer.ggml.tokens"],
        scores=metadata.pop("tokenizer.ggml.scores"),
        types=metadata["tokenizer.ggml.token_type"],
        source="test",
    )
    merges = [" ".join(merge) for merge in merges_of(vocabulary)]
    written = metadata | {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": merges}
    tokenizer = from_metadata(tmp_path, written)
    for text in TEXTS:
        assert tokenizer.encode(text) == original.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == original.decode(original.encode(text))


def test_spm_defaults(sentencepiece_model: bytes, tmp_path: Path) -> None:
    metadata = vocabularies.spm_metadata(sentencepiece_model)
    bare = {key: value for key, value in metadata.items() if not key.endswith("_token_id")}
    assert from_metadata(tmp_path, bare).special == from_metadata(tmp_path, metadata).special


def test_phi3_tokens_swallow_spaces(sentencepiece_model: bytes, tmp_path: Path) -> None:
    metadata = vocabularies.spm_metadata(sentencepiece_model) | {"general.name": "Phi-3 Mini"}
    tokenizer = from_metadata(tmp_path, metadata)
    assert tokenizer.encode("<|im_end|>  \n a") == tokenizer.encode("<|im_end|>a")
    assert tokenizer.encode("<|endoftext|> a") != tokenizer.encode("<|endoftext|>a")


# --- WordPiece -------------------------------------------------------------------------------------------------------


def test_wordpiece_gives_the_same_ids(wordpiece: tokenizers.Tokenizer, tmp_path: Path) -> None:
    assert_same(from_metadata(tmp_path, vocabularies.wordpiece_metadata(wordpiece)), wordpiece)


def test_wordpiece_that_keeps_case(tmp_path: Path) -> None:
    original = vocabularies.wordpiece()
    original.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    metadata = vocabularies.wordpiece_metadata(original) | {"tokenizer.ggml.normalizer.lowercase": False}
    assert_same(from_metadata(tmp_path, metadata), original)


# --- what cannot be read ---------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown variant": ({"tokenizer.ggml.pre": "smollmm"}, "'smollmm'.*Did you mean 'smollm'"),
    "an unknown kind": ({"tokenizer.ggml.model": "rwkv"}, "kind 'rwkv'.*gpt2, llama, gemma4, bert"),
    "no kind": ({"tokenizer.ggml.model": 3}, "does not give tokenizer.ggml.model"),
    "tokens that are no array": ({"tokenizer.ggml.tokens": "a"}, "does not give tokenizer.ggml.tokens as an array"),
    "tokens that are numbers": ({"tokenizer.ggml.tokens": [1, 2]}, "elements of another type"),
    "a token twice": ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, "tokens 0 and 2 both as 'a'"),
    "too few types": ({"tokenizer.ggml.token_type": [1, 1]}, "2 tokenizer.ggml.token_type for"),
    "a merge of one": ({"tokenizer.ggml.merges": ["ab"]}, "the merge 'ab', which is not two tokens"),
    "a merge of strangers": ({"tokenizer.ggml.merges": ["zzzz yyyy"]}, "merges that do not fit"),
    "an id past the end": (
        {"tokenizer.ggml.bos_token_id": 1 << 20},
        "bos_token_id as 1048576, but token ids go from 0",
    ),
    "a flag that is a number": (
        {"tokenizer.ggml.add_bos_token": 1},
        "add_bos_token as 1, but it must be true or false",
    ),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_metadata_is_refused(
    change: dict[str, Any], message: str, byte_level: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    metadata = vocabularies.bpe_metadata(byte_level, "gpt-2") | change
    with pytest.raises(CheckpointError, match=message):
        from_metadata(tmp_path, metadata)


def test_bos_that_is_asked_for_but_not_named_is_refused(byte_level: tokenizers.Tokenizer, tmp_path: Path) -> None:
    metadata = vocabularies.bpe_metadata(byte_level, "gpt-2") | {"tokenizer.ggml.add_bos_token": True}
    del metadata["tokenizer.ggml.bos_token_id"]
    with pytest.raises(CheckpointError, match="asks for the bos token"):
        from_metadata(tmp_path, metadata)


# --- a real file -----------------------------------------------------------------------------------------------------


def smollm2() -> Path:
    given = os.environ.get("QUIRE_TEST_GGUF")
    path = Path(given) if given else default_model_path()
    if path is None or not path.is_file():
        pytest.skip("SmolLM2 is not on this machine; set QUIRE_TEST_GGUF to its file")
    return path


@pytest.mark.slow
def test_smollm2_cuts_and_merges_as_its_tokenizer_json(transformers: Any) -> None:
    """`transformers` reads the same file, but cuts as GPT-2; SmolLM2's tokenizer.json takes digits apart first."""
    path = smollm2()
    ours = load_tokenizer(path)
    oracle = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    oracle.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(CUT_BY_TOKENIZER_JSON["smollm"])
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == oracle.encode(text), text
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == oracle.decode(ids, skip_special_tokens=skip)
    assert ours.vocab_size == 49_152
    named = ours.named_tokens()
    assert (named["bos_token"], named["eos_token"]) == ("<|im_start|>", "<|im_end|>")
