"""Every way of cutting text keeps all of it, and those `transformers` knows too cut at the same places."""

import warnings
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers

from quire.core.errors import CheckpointError
from quire.text.pretokenizers import find_variant, variant_names
from tests.text.corpus import TEXTS

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
LIBRARY: dict[str, Any] = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "starcoder": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
}


def parts(pre_tokenizer: Any, text: str) -> list[str]:
    return [part for part, _ in pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", variant_names())
def test_no_text_is_lost(name: str) -> None:
    cut = find_variant(name, "test").pre_tokenizer()
    for text in TEXTS:
        assert "".join(parts(cut, text)) == "".join(parts(BYTES, text)), text


@pytest.mark.parametrize("name", LIBRARY)
def test_library_cuts_at_the_same_places(name: str) -> None:
    cut = find_variant(name, "test").pre_tokenizer()
    for text in TEXTS:
        assert parts(cut, text) == parts(LIBRARY[name], text), text


def test_transformers_cuts_at_the_same_places() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.integrations.gguf import gguf_tokenizer_mapping
    splits = gguf_tokenizer_mapping.GGUF_PRE_TOKENIZER_SPLITS
    assert splits.keys() <= set(variant_names())
    for name, pattern in splits.items():
        cut = find_variant(name, "test").pre_tokenizer()
        theirs = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), BYTES])
        for text in TEXTS:
            assert parts(cut, text) == parts(theirs, text), (name, text)


def cut_text(name: str, text: str) -> list[str]:
    """The parts as text, for texts in ASCII."""
    return [
        part.replace("Ġ", " ").replace("Ċ", "\n") for part in parts(find_variant(name, "test").pre_tokenizer(), text)
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "I'm 12345 ok\n\n", ["I", "'m", " 12345", " ok", "\n\n"]),
        ("llama-bpe", "I'M 12345 ok\n\n", ["I", "'M", " ", "123", "45", " ok", "\n\n"]),
        ("qwen2", "I'm 123", ["I", "'m", " ", "1", "2", "3"]),
        ("smollm", "x 12", ["x", " ", "1", "2"]),
        ("tekken", "HelloWorld's", ["Hello", "World", "'s"]),
        ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", " ", "123", "4"]),
        ("deepseek-llm", "ab 12, cd\n", ["ab", " ", "1", "2", ",", " cd", "\n"]),
        ("deepseek-coder", "ab 12, cd\n", ["ab", " ", "1", "2", ",", " cd", "\n"]),
        ("deepseek-v3", "f(x) 1234 .foo", ["f", "(x", ")", " ", "123", "4", " .", "foo"]),
        ("bloom", "one, two", ["one", ",", " two"]),
        ("superbpe", "in 1234567 of", ["in ", "1", "234", "567", " of"]),
        ("jais-2", "a" + " " * 11 + "b", ["a", " " * 8, " " * 2, " b"]),
    ],
)
def test_examples(name: str, text: str, expected: list[str]) -> None:
    assert cut_text(name, text) == expected


def test_unknown_variant_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"model.gguf cuts text as 'qwen22'.*Did you mean 'qwen2'\?"):
        find_variant("qwen22", "model.gguf")
