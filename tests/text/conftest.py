"""One of each tokenizer for all tests of this folder; training one takes a moment."""

import warnings
from typing import Any

import pytest
import tokenizers

from tests.text import vocabularies


@pytest.fixture(scope="session")
def byte_level() -> tokenizers.Tokenizer:
    return vocabularies.byte_level()


@pytest.fixture(scope="session")
def wordpiece() -> tokenizers.Tokenizer:
    return vocabularies.wordpiece()


@pytest.fixture(scope="session")
def metaspace() -> tokenizers.Tokenizer:
    return vocabularies.metaspace()


@pytest.fixture(scope="session")
def sentencepiece_model() -> bytes:
    return vocabularies.sentencepiece_model()


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The oracle, imported when a test needs it; its import warns of things that are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        return transformers
