"""Rules: what may follow drafts is what may follow the same tokens once they are said; and matchers that give up."""

from collections.abc import Sequence

import numpy as np
import pytest
from llguidance import LLMatcher, LLParserLimits

from quire.core.structured import StructuredOutput
from quire.sampling.grammar.language import grammar_of
from quire.sampling.grammar.rule import Rule, Words
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


def rule(structured: StructuredOutput, stops: Sequence[int] = (EOS,)) -> Rule:
    return Rule(matcher(structured), frozenset(stops), (EOS,))


def mask(of: Rule) -> list[int]:
    words = np.empty(WIDTH, np.uint32)
    of.matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    of.correct_mask(words)
    return words.tolist()


def room(count: int) -> Words:
    return np.zeros((count, WIDTH), np.uint32)


@pytest.mark.parametrize("stops", [(EOS,), (), (EOS, *tokens_of("7"))])
@pytest.mark.parametrize(
    ("text", "drafts", "allowed"),
    [
        ("", "yes 12", 4),
        ("yes", " 1x2", 2),
        ("no", "x", 0),
        ("no 1", "", 0),
        ("", "no 4 5 6", 7),
    ],
)
def test_what_may_follow_drafts(text: str, drafts: str, allowed: int, stops: tuple[int, ...]) -> None:
    asked, said = rule(COUNTS, stops), rule(COUNTS, stops)
    for token in tokens_of(text):
        asked.advance(token)
        said.advance(token)
    before, behind = mask(asked), room(len(drafts))
    tokens = tokens_of(drafts)
    assert asked.masks_behind(tokens, behind) == asked.num_allowed(tokens) == allowed
    for token, found in zip(tokens[:allowed], behind, strict=False):
        said.advance(token)
        assert found.tolist() == mask(said)
    assert mask(asked) == before, "they are not said yet"


@pytest.mark.parametrize(
    ("structured", "drafts", "allowed"),
    [
        (COUNTS, [*tokens_of("yes"), EOS, *tokens_of(" 1")], 1),
        (StructuredOutput(choice=("yes 1",)), tokens_of("yes 1"), 2),  # the last ends the text by itself
    ],
)
def test_nothing_follows_an_end(structured: StructuredOutput, drafts: list[int], allowed: int) -> None:
    assert rule(structured).masks_behind(drafts, room(len(drafts))) == allowed


def test_drafts_that_fill_the_tables_cost_their_sequence_nothing_but_drafts() -> None:
    tokens = tokens_of("xaay" * 30)
    alone = Rule(matcher(HARD), frozenset([EOS]), (EOS,))
    drafting = Rule(matcher(HARD, states=200), frozenset([EOS]), (EOS,), lambda: matcher(HARD))
    found = []
    for place in range(0, 40, 2):
        behind = room(4)
        found.append(drafting.masks_behind(tokens[place : place + 4], behind))
        assert mask(drafting) == mask(alone)
        for token in tokens[place : place + 2]:
            alone.advance(token)
            drafting.advance(token)
    full = next(number for number, count in enumerate(found) if count < 4)
    assert 2 < full < 12
    assert not any(found[full + 1 :])
    assert drafting.failure is None
