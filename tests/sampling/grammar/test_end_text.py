"""Ends of thinking that a model writes in other tokens than the tokenizer would."""

import pytest
from llguidance import LLTokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from quire.core.reasoning import ReasoningPart
from quire.sampling.grammar.end_text import EndText
from quire.sampling.grammar.thinking import Stage, Thinking

MERGES = [("<", "/"), (".", "</"), (">", "Ċ"), (">", "{"), ("n", "k")]


@pytest.fixture(scope="module")
def backend() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["</s>", *letters, *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({piece: place for place, piece in enumerate(pieces)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="module")
def part(backend: Tokenizer) -> ReasoningPart:
    return ReasoningPart(start=(0,), end=backend.encode("</think>").ids, is_open=True)


@pytest.fixture(scope="module")
def end_text(backend: Tokenizer, part: ReasoningPart) -> EndText:
    return EndText(part.end, LLTokenizer(backend.to_str(), eos_token=0))


@pytest.mark.parametrize("said", ["a</think>", "a.</think>", "a</think>\n", "a.</think>\n", "</</think>"])
def test_it_is_found_in_whatever_tokens_it_is_written(
    backend: Tokenizer, part: ReasoningPart, end_text: EndText, said: str
) -> None:
    thinking = Thinking(part, end_text)
    for token in backend.encode(said).ids:
        assert thinking.stage is Stage.WITHIN
        assert token not in thinking.ruled_out
        thinking.advance(token)
    assert thinking.stage is Stage.BEHIND
    assert not thinking.ruled_out


def test_a_token_that_is_end_and_answer_at_once_is_ruled_out_just_there(
    backend: Tokenizer, part: ReasoningPart, end_text: EndText
) -> None:
    thinking = Thinking(part, end_text)
    for token in backend.encode("a>{b</think").ids:
        assert not thinking.ruled_out
        thinking.advance(token)
    assert thinking.ruled_out == {backend.token_to_id(">{")}
    thinking.advance(backend.encode("x").ids[0])
    assert (thinking.stage, thinking.ruled_out) == (Stage.WITHIN, frozenset())


def test_a_budget_that_is_spent_amid_an_end_writes_all_of_it(
    backend: Tokenizer, part: ReasoningPart, end_text: EndText
) -> None:
    thinking = Thinking(ReasoningPart(start=(0,), end=part.end, is_open=True, budget=2), end_text)
    said = backend.encode("a.</").ids
    for token in said:
        thinking.advance(token)
    while thinking.forced is not None:
        said.append(thinking.forced)
        thinking.advance(said[-1])
    assert backend.decode(said) == "a.</</think>"
    assert thinking.stage is Stage.BEHIND
