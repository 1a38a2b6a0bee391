"""Random prompts have the length that was asked for, by the tokenizer that was given."""

from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from quire.bench.vocabulary import USUAL_IDS, Vocabulary
from quire.models.loading.fetch import find_here
from quire.text.load import load_tokenizer
from tests.bench.words import WordTokens


@given(st.integers(0, 50), st.integers(0, 100))
def test_with_a_tokenizer_lengths_are_exact(count: int, seed: int) -> None:
    vocabulary = Vocabulary(WordTokens())
    ids = vocabulary.ids(count, Random(seed))
    assert len(ids) == count
    assert 0 not in ids  # special
    assert vocabulary.count(vocabulary.text(count, Random(seed))) == count
    assert vocabulary.is_exact


def test_without_one_nobody_counts() -> None:
    vocabulary = Vocabulary()
    assert set(vocabulary.ids(100, Random(0))) <= set(USUAL_IDS)
    assert len(vocabulary.text(12, Random(0)).split()) == 12
    assert vocabulary.count("a b c") is None
    assert not vocabulary.is_exact


def test_words_of_the_default_model_are_one_token_each() -> None:
    path = find_here("smollm2")
    assert isinstance(path, Path)
    vocabulary = Vocabulary(load_tokenizer(path))
    for count in (1, 17, 300):
        text = vocabulary.text(count, Random(count))
        assert vocabulary.count(" " + text) == count
