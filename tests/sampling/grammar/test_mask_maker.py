"""Masks of several rows and of what may follow their drafts, one by one and by threads."""

from collections.abc import Sequence

import pytest
import torch
from llguidance import LLMatcher, LLParserLimits

from quire.core.structured import StructuredOutput
from quire.sampling.grammar import mask_maker
from quire.sampling.grammar.constraint import Constraint
from quire.sampling.grammar.language import grammar_of
from quire.sampling.grammar.mask_maker import MaskMaker
from quire.sampling.grammar.rule import Rule
from tests.sampling.grammar.vocabulary import EOS, tokenizer, tokens_of, vocabulary

COUNTS = StructuredOutput(regex=r"(yes|no)( [0-9]+)*")
HARD = StructuredOutput(regex="(.*a.{0,50}){50}")
WIDTH = -(-vocabulary().size // 32)


def matcher(structured: StructuredOutput, states: int = 10_000) -> LLMatcher:
    """Whose tables have room for so many states."""
    limits = LLParserLimits(
        step_lexer_fuel=150_000,
        step_max_items=50_000,
        max_lexer_states=states,
        max_grammar_size=250_000,
        verbose_errors=False,
    )
    return LLMatcher(tokenizer(), grammar_of(structured, tokenizer()), log_level=0, limits=limits)


def constraint(structured: StructuredOutput, text: str = "", stops: Sequence[int] = (EOS,)) -> Constraint:
    """Behind a text."""
    made = Constraint(Rule(matcher(structured), frozenset(stops), (EOS,)), None, frozenset(stops))
    for token in tokens_of(text):
        made.advance(token)
    return made


def mask(maker: MaskMaker, of: Constraint) -> list[int]:
    return maker.masks([(of, ())], WIDTH).words[0].tolist()


@pytest.fixture(params=["one by one", "by threads"])
def maker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MaskMaker:
    monkeypatch.setattr(mask_maker, "_WORTH_THREADS", 0.0 if request.param == "by threads" else 100.0)
    return MaskMaker(torch.device("cpu"))


@pytest.mark.parametrize("stops", [(EOS,), (), (EOS, *tokens_of("7"))])
@pytest.mark.parametrize(
    ("text", "drafts", "allowed"), [("", "yes 12", 4), ("yes", " 1x2", 2), ("no", "x", 0), ("", "no 4 5 6", 7)]
)
def test_what_may_follow_drafts_is_what_may_follow_the_same_tokens_once_they_are_said(
    maker: MaskMaker, text: str, drafts: str, allowed: int, stops: tuple[int, ...]
) -> None:
    asked, without, said = constraint(COUNTS, text, stops), constraint(COUNTS, "no 1"), constraint(COUNTS, text, stops)
    tokens = tokens_of(drafts)
    before = mask(maker, asked)
    made = maker.masks([(without, ()), (asked, tokens), (Constraint(None, None, frozenset()), ())], WIDTH)
    found, told = made.words.tolist(), made.allowed
    assert told == [0, allowed, 0]
    assert len(found) == 3 + len(tokens)
    assert found[0] == mask(maker, without)
    assert found[1] == before == mask(maker, asked), "they are not said yet"
    for token, behind in zip(tokens[:allowed], found[2:], strict=False):
        said.advance(token)
        assert behind == mask(maker, said)
    assert all(word == -1 for row in found[2 + allowed :] for word in row)


@pytest.mark.parametrize(
    ("structured", "drafts", "allowed"),
    [
        (COUNTS, [*tokens_of("yes"), EOS, *tokens_of(" 1")], 1),
        (StructuredOutput(choice=("yes 1",)), tokens_of("yes 1"), 2),  # the last ends the text by itself
    ],
)
def test_nothing_follows_an_end(
    maker: MaskMaker, structured: StructuredOutput, drafts: list[int], allowed: int
) -> None:
    assert maker.masks([(constraint(structured), drafts)], WIDTH).allowed == [allowed]


def test_drafts_that_fill_the_tables_cost_their_sequence_nothing_but_drafts(maker: MaskMaker) -> None:
    """A sequence that shares no tables with it says the same meanwhile."""
    tokens = tokens_of("xaay" * 30)
    alone, beside = constraint(HARD), constraint(COUNTS)
    small = Rule(matcher(HARD, states=200), frozenset([EOS]), (EOS,), lambda: matcher(HARD))
    drafting = Constraint(small, None, frozenset([EOS]))
    found = []
    for place in range(0, 40, 2):
        made = maker.masks([(drafting, tokens[place : place + 4]), (beside, tokens_of("yes 1"))], WIDTH)
        found.append(made.allowed[0])
        assert made.allowed[1] == 3
        assert made.words[0].tolist() == mask(maker, alone)
        for token in tokens[place : place + 2]:
            alone.advance(token)
            drafting.advance(token)
    full = next(number for number, count in enumerate(found) if count < 4)
    assert 2 < full < 12
    assert not any(found[full:])
    assert drafting.failure is None
