"""Tokens that a grammar adds to those drawn: known at once, computed later like any others."""

from typing import Any

import pytest

from quire.core.result import StepResult
from quire.core.status import Status
from quire.kvcache.invariants import check
from quire.scheduler.draft_length import DraftLength
from quire.scheduler.granting import MAX_JUMP
from tests.scheduler.bookkeeping import EOS, make_request, make_scheduler


def test_forced_tokens_are_computed_as_one_chunk_and_the_last_of_them_samples():
    scheduler = make_scheduler(block_size=4, num_blocks=32)
    [seq] = scheduler.add(make_request("a", [1, 2, 3], max_tokens=50))
    plan = scheduler.schedule(0.0)
    update = scheduler.update(StepResult(step=plan.step, tokens=[5], forced={0: [6, 7, 8, 9, 10]}))
    assert (update.sequences, update.tokens) == ([seq] * 6, [5, 6, 7, 8, 9, 10])
    assert (seq.num_computed, seq.num_tokens, seq.num_pending) == (3, 9, 0)
    plan = scheduler.schedule(1.0)
    assert (plan.rows, plan.counts, plan.num_sampling) == ([seq.row], [6], 1)
    [delta] = plan.table_deltas
    assert (delta.start, len(delta.tables[0])) == (1, 2)
    scheduler.update(StepResult(step=plan.step, tokens=[11]))
    assert scheduler.schedule(2.0).counts == [1]
    check(scheduler.kv)


class Noted(DraftLength):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(2)
        self.told: list[tuple[int, float | None, int]] = []

    def observe(self, *given: Any, **named: Any) -> None:
        decodes, _, _, seconds = given
        self.told.append((decodes, seconds, named["forced"]))


def test_what_a_grammar_forces_counts_in_what_drafts_gain():
    """A step that computes forced tokens is one of those that answer, if there is no prompt beside."""
    scheduler = make_scheduler(num_blocks=64)
    noted = scheduler._draft_length = Noted()
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=50))
    plan = scheduler.schedule(0.0)
    scheduler.update(StepResult(step=plan.step, tokens=[5], forced={0: [6, 7, 8]}, elapsed=0.4))
    plan = scheduler.schedule(1.0)
    scheduler.update(StepResult(step=plan.step, tokens=[9], forced={0: [6, 7]}, elapsed=0.1))
    scheduler.add(make_request("b", list(range(20)), arrival=1.0))
    plan = scheduler.schedule(2.0)
    assert plan.counts == [3, 20]
    scheduler.update(StepResult(step=plan.step, tokens=[9, 9], elapsed=0.3))
    plan = scheduler.schedule(3.0)
    scheduler.update(StepResult(step=plan.step, tokens=[9, 9], elapsed=0.2))
    assert noted.told == [(0, None, 3), (1, 0.1, 2), (1, None, 0), (2, 0.2, 0)]


def test_forced_tokens_do_not_wait_behind_a_long_prompt():
    scheduler = make_scheduler(max_num_batched_tokens=10, num_blocks=64)
    scheduler.add(make_request("stream", [1, 2], max_tokens=50))
    plan = scheduler.schedule(0.0)
    scheduler.update(StepResult(step=plan.step, tokens=[5]))
    scheduler.add(make_request("long", list(range(40)), arrival=1.0))
    plan = scheduler.schedule(1.0)
    scheduler.update(StepResult(step=plan.step, tokens=[5], forced={0: [6, 7, 8]}))
    assert scheduler.schedule(2.0).counts == [4, 6]


def test_more_forced_tokens_than_a_step_takes_are_taken_in_turns():
    scheduler = make_scheduler(max_num_batched_tokens=8, num_blocks=64, max_model_len=600)
    [seq] = scheduler.add(make_request("a", [1, 2], max_tokens=90))
    plan = scheduler.schedule(0.0)
    scheduler.update(StepResult(step=plan.step, tokens=[5], forced={0: [6] * 11}))
    plans = [scheduler.schedule(1.0)]
    scheduler.update(StepResult(step=plans[-1].step))
    plans.append(scheduler.schedule(2.0))
    assert [(plan.counts, plan.num_sampling) for plan in plans] == [([8], 0), ([4], 1)]
    assert seq.num_computed == 14
    assert MAX_JUMP > 12


@pytest.mark.parametrize(
    ("forced", "status", "kept"),
    [([6, 7, 8, 9, 10], Status.LENGTH, [5, 6, 7, 8]), ([6, EOS, 8], Status.STOPPED, [5, 6, EOS])],
)
def test_forced_tokens_end_a_sequence_like_others(forced: list[int], status: Status, kept: list[int]):
    scheduler = make_scheduler()
    [seq] = scheduler.add(make_request("a", [1, 2, 3], max_tokens=4))
    plan = scheduler.schedule(0.0)
    update = scheduler.update(StepResult(step=plan.step, tokens=[5], forced={0: forced}))
    assert (seq.status, seq.tokens[3:], update.tokens) == (status, kept, kept)
    assert scheduler.take_finished() == [seq]


def test_a_drawn_end_leaves_no_room_for_forced_ones():
    scheduler = make_scheduler()
    [seq] = scheduler.add(make_request("a", [1], max_tokens=9))
    plan = scheduler.schedule(0.0)
    update = scheduler.update(StepResult(step=plan.step, tokens=[EOS], forced={0: [6]}, ended=[0]))
    assert (update.tokens, seq.status) == ([EOS], Status.STOPPED)


def test_a_satisfied_grammar_ends_its_sequence_behind_what_it_forced():
    scheduler = make_scheduler()
    [seq] = scheduler.add(make_request("a", [1], max_tokens=9, ignore_eos=True, min_tokens=8))
    plan = scheduler.schedule(0.0)
    update = scheduler.update(StepResult(step=plan.step, tokens=[5], forced={0: [6]}, ended=[0]))
    assert (update.tokens, seq.status, seq.failure) == ([5, 6], Status.STOPPED, None)


def test_a_satisfied_grammar_ends_a_sequence_whose_next_step_is_under_way():
    scheduler = make_scheduler()
    [seq] = scheduler.add(make_request("a", [1], max_tokens=9))
    first, second = scheduler.schedule(0.0), scheduler.schedule(0.0)
    assert scheduler.update(StepResult(step=first.step, tokens=[5], ended=[0])).tokens == [5]
    assert scheduler.update(StepResult(step=second.step, tokens=[6])).tokens == []
    assert (seq.status, seq.tokens) == (Status.STOPPED, [1, 5])
    scheduler.schedule(1.0)
    check(scheduler.kv)


def test_a_failure_has_its_reason_and_is_its_own():
    scheduler = make_scheduler()
    [bad] = scheduler.add(make_request("a", [1], max_tokens=9))
    [good] = scheduler.add(make_request("b", [2], max_tokens=9))
    plan = scheduler.schedule(0.0)
    update = scheduler.update(StepResult(step=plan.step, tokens=[5, 6], invalid=[0], failures={0: "because"}))
    assert (bad.status, bad.failure, bad.num_output) == (Status.FAILED, "because", 0)
    assert (good.status, update.tokens) == (Status.RUNNING, [6])
