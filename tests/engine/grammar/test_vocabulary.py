"""What grammars take tokens for is what tokens read, for every kind of tokenizer."""

from pathlib import Path

import pytest
import tokenizers

from quire.core.structured import StructuredOutput
from quire.engine.grammar.vocabulary import grammar_vocabulary
from quire.sampling.grammar.compile import compile_matcher
from quire.sampling.grammar.vocabulary import VocabularyUnsupported, open_vocabulary
from quire.text.load import load_tokenizer
from quire.text.tokenizer import Tokenizer
from tests.text import vocabularies

TEXT = '{"hello the world": ["é", "🙂", 1, 2]}'


def check(tokenizer: Tokenizer) -> None:
    opened = open_vocabulary(grammar_vocabulary(tokenizer, tokenizer.vocab_size + 40))
    assert opened.vocab_size == tokenizer.vocab_size + 40
    for token in range(tokenizer.vocab_size):
        # the library keeps the byte 255, which no text has, for special tokens
        if not tokenizer.is_special(token) and tokenizer.token_bytes(token) != b"\xff":
            assert opened.decode_bytes([token]) == tokenizer.token_bytes(token)
    matcher = compile_matcher(StructuredOutput.of({"const": {"hello the world": ["é", "🙂", 1, 2]}}), opened)
    forced = matcher.compute_ff_tokens()
    prompt = tokenizer.encode("x")
    detokenizer = tokenizer.detokenizer(prompt=prompt)
    assert detokenizer.extend(forced) + detokenizer.flush() == TEXT
    assert matcher.consume_tokens(forced)
    assert matcher.is_accepting()


@pytest.fixture(scope="module")
def sentencepiece_model() -> bytes:
    return vocabularies.sentencepiece_model()


@pytest.fixture(scope="module")
def byte_level() -> tokenizers.Tokenizer:
    return vocabularies.byte_level()


def test_byte_level(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    check(load_tokenizer(vocabularies.write_folder(tmp_path, byte_level, eos_token="<|im_end|>")))


def test_byte_level_without_an_end(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    check(load_tokenizer(vocabularies.write_folder(tmp_path, byte_level)))


def test_byte_level_in_a_gguf_file(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    metadata = vocabularies.bpe_metadata(byte_level, "gpt-2")
    check(load_tokenizer(vocabularies.write_gguf(tmp_path / "model.gguf", metadata)))


def test_sentencepiece_in_a_gguf_file(tmp_path: Path, sentencepiece_model: bytes) -> None:
    metadata = vocabularies.spm_metadata(sentencepiece_model)
    check(load_tokenizer(vocabularies.write_gguf(tmp_path / "model.gguf", metadata)))


def test_sentencepiece_in_a_folder(tmp_path: Path, sentencepiece_model: bytes) -> None:
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    check(load_tokenizer(tmp_path))


def test_a_kind_that_has_no_bytes_is_refused(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(vocabularies.write_folder(tmp_path, vocabularies.wordpiece()))
    with pytest.raises(VocabularyUnsupported, match="does not work with this model's tokenizer"):
        open_vocabulary(grammar_vocabulary(tokenizer, 500))
