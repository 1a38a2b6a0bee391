"""Pairs are written and cut as the `tokenizers` library does it itself."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import BertProcessing, RobertaProcessing, TemplateProcessing

from quire.core.errors import InvalidRequest
from quire.text.pairs import PairFrame
from quire.text.special_tokens import SpecialTokens
from quire.text.tokenizer import Tokenizer
from tests.text.vocabularies import byte_level, wordpiece

PROCESSORS = {
    "bert": BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "roberta": RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "prefix": TemplateProcessing(single="[CLS] $A", pair="[CLS] $A [CLS]:1 $B:1", special_tokens=[("[CLS]", 2)]),
}


def backend(name: str) -> tokenizers.Tokenizer:
    found = wordpiece()
    found.post_processor = PROCESSORS[name]
    return found


@pytest.mark.parametrize("name", PROCESSORS)
@given(first=st.integers(0, 12), second=st.integers(0, 12), limit=st.integers(6, 30))
def test_frames_and_cuts_are_the_librarys(name: str, first: int, second: int, limit: int) -> None:
    texts = " ".join(["a"] * first), " ".join(["b"] * second)
    tokenizer = Tokenizer(backend(name), SpecialTokens(), source="test")
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    found = tokenizer.pair_frame().join(*ids, limit)
    oracle = backend(name)
    oracle.enable_truncation(limit, strategy="longest_first")
    expected = oracle.encode(*texts)
    assert (found.ids, found.types) == (expected.ids, expected.type_ids)


def test_without_a_frame_one_text_follows_the_other() -> None:
    tokenizer = Tokenizer(byte_level(), SpecialTokens(), source="test")
    assert tokenizer.pair_frame() == PairFrame(second_type=1)
    assert tokenizer.pair_frame().join([1, 2], [3]).ids == [1, 2, 3]


def test_a_model_that_knows_no_types_is_told_none() -> None:
    tokenizer = Tokenizer(backend("bert"), SpecialTokens(), source="test", with_types=False)
    assert set(tokenizer.pair_frame().join([5], [6]).types) == {0}


def test_bare_pairs_keep_their_types() -> None:
    frame = Tokenizer(backend("bert"), SpecialTokens(), source="test").pair_frame()
    assert (frame.size, frame.bare().size) == (3, 0)
    assert frame.bare().join([5], [6, 7]).types == [0, 1, 1]


def test_a_limit_below_the_frame_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="adds 3 tokens to every pair"):
        Tokenizer(backend("bert"), SpecialTokens(), source="test").pair_frame().join([5], [6], 2)
