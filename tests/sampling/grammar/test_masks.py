"""Masks of whole batches, from admission to the end of a text."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest
import torch

from quire.core.reasoning import ReasoningPart
from quire.core.sampling_params import SamplingParams
from quire.core.structured import StructuredOutput
from quire.ops.functional import adjust_logits
from quire.sampling.grammar import mask_maker
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.constraint import Constraint
from quire.sampling.grammar.masks import GrammarMasks
from quire.sampling.grammar.progress import advance, jump
from quire.sampling.grammar.thinking import most_tokens
from quire.sampling.grammar.unbound import UnboundGrammars
from quire.sampling.newcomer import Newcomer
from quire.sampling.row_adjustments import RowAdjustments
from tests.sampling.grammar.vocabulary import BOS, EOS, THINK, UNTHINK, tokenizer, tokens_of, vocabulary

CPU = torch.device("cpu")
YES_NO = StructuredOutput(choice=("yes", "no"))
PART = ReasoningPart(start=(THINK,), end=(UNTHINK,))
YES, NO = tokens_of("yes")[0], tokens_of("no")[0]


@pytest.fixture(scope="module")
def grammar_cache() -> GrammarCache:
    return GrammarCache(vocabulary)


class Rows:
    """A worker's rows, with nothing behind them."""

    def __init__(self, grammar_cache: GrammarCache) -> None:
        self.adjustments = RowAdjustments(8, vocabulary().size, CPU)
        asked = self.adjustments.tensors
        self.masks = GrammarMasks(asked.masks, asked.is_masked, vocabulary().size, grammar_cache)
        self.found: list[tuple[int, Constraint]] = []

    def admit(
        self, row: int, *, output: tuple[int, ...] = (), stops: tuple[int, ...] = (EOS,), **params: object
    ) -> None:
        newcomer = Newcomer(SamplingParams(**params), (BOS,), output, stops, ())
        self.masks.admit(row, newcomer)

    def allowed(self, *rows: int) -> list[set[int]]:
        """What each of a batch's rows may say."""
        self.masks.bind(rows)
        self.found = self.masks.constrained(rows)
        logits = torch.zeros(len(rows), vocabulary().size)
        history, asked = torch.zeros(9, 4, dtype=torch.int32), self.adjustments.tensors
        found = adjust_logits(logits, torch.tensor(rows), torch.ones(len(rows), dtype=torch.int64), history, asked)
        return [set(np.flatnonzero(np.isfinite(row.numpy())).tolist()) for row in found.values]


@pytest.fixture
def rows(grammar_cache: GrammarCache) -> Rows:
    return Rows(grammar_cache)


def everything() -> set[int]:
    return set(range(vocabulary().size))


def test_only_those_that_asked_are_bound(rows: Rows) -> None:
    assert not rows.masks.is_active
    rows.admit(1, structured=YES_NO)
    rows.admit(2)
    assert rows.masks.is_active
    free, bound = rows.allowed(2, 1)
    assert free == everything()
    assert bound == {*tokens_of("y"), *tokens_of("n"), *tokens_of("ye"), YES, NO}
    rows.masks.release(1)
    assert not rows.masks.is_active


@pytest.mark.parametrize("foreseen", [False, True])
def test_many_rows_at_once_and_each_its_own_matcher(
    rows: Rows, foreseen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_maker, "_WORTH_THREADS", 0.0 if foreseen else 100.0)
    for row in range(8):
        rows.admit(row, structured=YES_NO, output=(tokens_of("y")[0],) if row % 2 else ())
    rows.masks.foresee(range(7))
    rows.masks.foresee(range(6))  # nobody asked for the first: their step threw, and nobody asks for these
    masks = rows.allowed(*range(8))
    rows.masks.foresee(range(8))
    assert rows.allowed(*range(8)) == masks
    assert all(mask == masks[row % 2] for row, mask in enumerate(masks))
    assert masks[1] == {*tokens_of("e")}


def test_a_row_that_changes_hands_is_free_again(rows: Rows) -> None:
    rows.admit(0, structured=YES_NO)
    rows.admit(1, structured=YES_NO)
    rows.allowed(0, 1)
    rows.masks.release(0)
    assert rows.allowed(0, 1)[0] == everything()


def test_an_end_is_allowed_exactly_where_the_grammar_is_satisfied(rows: Rows) -> None:
    letters = StructuredOutput(regex="[a-z]+")
    rows.admit(0, structured=letters)
    rows.admit(1, structured=letters, output=tuple(tokens_of("a")))
    rows.admit(2, structured=letters, output=tuple(tokens_of("a")), stops=())
    rows.admit(3, structured=letters, output=tuple(tokens_of("a")), stops=(BOS, EOS, 10**6))
    none_yet, own, ignored, others = rows.allowed(0, 1, 2, 3)
    assert EOS not in none_yet
    assert EOS in own
    assert BOS not in own
    assert EOS not in ignored
    assert {EOS, BOS} <= others
    [found] = [constraint for place, constraint in rows.found if place == 3]
    assert advance([(0, found)], [[BOS]], [0]).ended == [0]


def test_a_text_that_is_complete_ends_by_itself(rows: Rows) -> None:
    rows.admit(0, structured=YES_NO)
    rows.allowed(0)
    progress = advance(rows.found, [[YES]], [0])
    assert (progress.ended, progress.failures) == ([0], {})
    assert rows.allowed(0) == [everything()]  # a step that was launched before anyone knew


def test_a_token_that_was_not_allowed_fails_its_sequence_alone(rows: Rows) -> None:
    rows.admit(0, structured=YES_NO)
    rows.admit(1, structured=YES_NO)
    rows.allowed(0, 1)
    progress = advance(rows.found, [[tokens_of("x")[0]], [NO]], [0, 0])
    assert list(progress.failures) == [0]
    assert progress.ended == [1]


def test_a_row_with_nothing_left_says_why(rows: Rows) -> None:
    rows.admit(0, structured=YES_NO)
    rows.allowed(0)
    assert "allowed_token_ids" in advance(rows.found, [[0]], [1]).failures[0]


def test_what_must_follow_is_taken_at_once(rows: Rows) -> None:
    rows.admit(0, structured=StructuredOutput(json='{"const": {"yes": [1, 2]}}'))
    rows.allowed(0)
    first = tokens_of("{")[0]
    progress = advance(rows.found, [[first]], [0])
    jump(0, rows.found[0][1], progress, 100)
    forced = progress.forced[0]
    assert tokenizer().decode_str([first, *forced]) == '{"yes": [1, 2]}'
    assert YES in forced  # as the tokenizer writes it
    assert (progress.forced, progress.ended) == ({0: forced}, [0])


def test_what_must_follow_is_cut_to_the_room_there_is(rows: Rows) -> None:
    rows.admit(0, structured=StructuredOutput(json='{"const": {"yes": [1, 2]}}'))
    rows.allowed(0)
    progress = advance(rows.found, [tokens_of("{")], [0])
    jump(0, rows.found[0][1], progress, 3)
    assert len(progress.forced[0]) == 3
    rows.admit(1, structured=StructuredOutput(json='{"const": {"yes": [1, 2]}}'))
    rows.allowed(1)
    progress = advance(rows.found, [tokens_of("{")], [0])
    jump(0, rows.found[0][1], progress, 0)
    assert not progress.forced


def test_a_grammar_waits_for_the_thoughts_to_end(rows: Rows) -> None:
    rows.admit(0, structured=YES_NO, reasoning=PART)
    rows.admit(1, structured=YES_NO, reasoning=PART, output=(THINK, 77))
    rows.admit(2, structured=YES_NO, reasoning=PART, output=(THINK, 77, UNTHINK))
    rows.admit(3, structured=YES_NO, reasoning=PART, output=tuple(tokens_of("y")))
    before, within, behind, never = rows.allowed(0, 1, 2, 3)
    answer = {*tokens_of("y"), *tokens_of("n"), *tokens_of("ye"), YES, NO}
    assert before == answer | {THINK}
    assert within == everything() - {EOS}
    assert behind == answer
    assert never == {*tokens_of("e")}


def test_a_start_of_several_tokens_may_also_be_the_answer(rows: Rows) -> None:
    part = ReasoningPart(start=tuple(tokens_of("n!")), end=(UNTHINK,))
    letter = tokens_of("n")[0]
    rows.admit(0, structured=YES_NO, reasoning=part, output=(letter,))
    rows.admit(1, structured=StructuredOutput(choice=("yes",)), reasoning=part, output=(letter,))
    rows.admit(2, structured=YES_NO, reasoning=part, output=tuple(tokens_of("n!x")))
    rows.admit(3, structured=YES_NO, reasoning=part, output=(*tokens_of("n!x"), UNTHINK))
    both, only, within, behind = rows.allowed(0, 1, 2, 3)
    assert both == {*tokens_of("o"), *tokens_of("!")}
    assert only == {*tokens_of("!")}
    assert within == everything() - {EOS}
    assert YES in behind


def test_an_end_of_several_tokens_is_known_by_its_text(rows: Rows) -> None:
    part = ReasoningPart(start=(THINK,), end=tuple(tokens_of("es")), is_open=True)
    rows.admit(0, structured=YES_NO, reasoning=part, output=(77, YES))
    rows.admit(1, structured=YES_NO, reasoning=part, output=(77, *tokens_of("e")))
    behind, within = rows.allowed(0, 1)
    assert behind == {*tokens_of("y"), *tokens_of("n"), *tokens_of("ye"), YES, NO}
    assert within == everything() - {EOS}


def test_a_grammar_begins_with_a_token_of_its_own(rows: Rows) -> None:
    part = ReasoningPart(start=(THINK,), end=tuple(tokens_of("!y")), is_open=True)
    rows.admit(0, structured=YES_NO, reasoning=part, output=(77, *tokens_of("!")))
    assert rows.allowed(0) == [everything() - {EOS, YES, *tokens_of("ye")}]


@pytest.mark.parametrize("structured", [None, YES_NO])
def test_a_budget_binds_with_and_without_a_grammar(rows: Rows, structured: StructuredOutput | None) -> None:
    part = ReasoningPart(start=(THINK,), end=(UNTHINK, BOS), is_open=True, budget=2)
    for row, said in enumerate([(), (50,), (50, 51), (50, 51, UNTHINK), (50, 51, UNTHINK, BOS)]):
        rows.admit(row, structured=structured, reasoning=part, output=said)
    free, _, full, half, done = rows.allowed(0, 1, 2, 3, 4)
    assert len(free) >= len(everything()) - 1
    assert (full, half) == ({UNTHINK}, {BOS})
    assert done == everything() if structured is None else YES in done and BOS not in done


def test_the_end_of_a_budget_is_written_at_once(rows: Rows) -> None:
    part = ReasoningPart(start=(THINK,), end=(UNTHINK, BOS), is_open=True, budget=1)
    rows.admit(0, reasoning=part)
    rows.allowed(0)
    progress = advance(rows.found, [[50]], [0])
    jump(0, rows.found[0][1], progress, 100)
    assert progress.forced == {0: [UNTHINK, BOS]}


def unasked(rows: Iterable[int]) -> dict[int, int]:
    raise AssertionError("it knows by the tokens")


@pytest.mark.parametrize(
    ("budget", "drawn"),
    [(2, (THINK, 50, 51, UNTHINK, BOS)), (9, (THINK, 50, UNTHINK, BOS)), (9, (50,))],
    ids=["spent", "ended by itself", "never begun"],
)
def test_a_budget_is_forgotten_when_the_thinking_is_over(rows: Rows, budget: int, drawn: tuple[int, ...]) -> None:
    part = ReasoningPart(start=(THINK,), end=(UNTHINK, BOS), budget=budget)
    rows.admit(0, reasoning=part)
    for token in drawn:
        assert not rows.masks.expire(unasked)
        assert token in rows.allowed(0)[0]
        advance(rows.found, [[token]], [0])
    assert rows.masks.is_active
    assert rows.masks.expire(unasked)
    assert not rows.masks.is_active
    assert rows.allowed(0) == [everything()]
    assert rows.found == []
    rows.admit(0, structured=YES_NO)  # by whoever has the row next
    assert not rows.masks.expire(unasked)
    assert EOS not in rows.allowed(0)[0]


def test_a_grammar_behind_a_budget_stays(rows: Rows) -> None:
    part = ReasoningPart(start=(THINK,), end=(UNTHINK,), budget=1)
    rows.admit(0, reasoning=part, structured=YES_NO, output=(THINK, 50, UNTHINK))
    rows.admit(1, reasoning=part, output=(THINK, 50, UNTHINK))
    assert rows.masks.expire(unasked)
    found, free = rows.allowed(0, 1)
    assert (YES in found, EOS in found) == (True, False)
    assert free == everything()


@pytest.mark.parametrize("kind", [partial(GrammarMasks, is_alone=False), UnboundGrammars])
def test_ranks_that_share_rows_forget_a_budget_in_one_step(kind: Callable[..., GrammarMasks]) -> None:
    asked = RowAdjustments(8, vocabulary().size, CPU).tensors
    masks = kind(asked.masks, asked.is_masked, vocabulary().size, None)
    part = ReasoningPart(start=(THINK,), end=(UNTHINK, BOS), budget=3)
    masks.admit(0, Newcomer(SamplingParams(reasoning=part), (BOS,), (THINK, 50, UNTHINK, BOS), (EOS,), ()))
    most = 1 + most_tokens(part, 3)
    assert not masks.expire(lambda rows: dict.fromkeys(rows, most - 1))
    assert masks.is_active
    assert masks.expire(lambda rows: dict.fromkeys(rows, most))
    assert not masks.is_active
    masks.release(0)
    assert not masks.expire(unasked)
