"""Schedulers of several attention ranks in step: who gets a request, what ranks are told, and that books balance."""

from collections import deque
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from quire.core.errors import RequestTooLarge
from quire.core.plan import StepPlan
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.kvcache.invariants import check
from quire.scheduler.base import StepScheduler
from quire.scheduler.rank_choice import SEQUENCE_TOKENS
from quire.scheduler.spread import SpreadScheduler
from tests.scheduler.bookkeeping import ReferenceDevice, expected_tokens, make_request, make_scheduler


class SpreadEngine:
    """Schedulers of so many ranks, each with an exact stand-in for its device, and steps that run ahead."""

    def __init__(self, ranks: int = 2, in_flight: int = 1, **given: Any) -> None:
        numbers = count()
        self.ranks = [make_scheduler(numbers=numbers, **given) for _ in range(ranks)]
        self.scheduler: StepScheduler = SpreadScheduler(self.ranks)
        self._devices = [ReferenceDevice(each) for each in self.ranks]
        self._in_flight = in_flight
        self._results: deque[StepResult] = deque()
        self.now = 0.0
        self.ended: list[Sequence] = []

    def step(self) -> StepPlan:
        self.now += 1.0
        plan = self.scheduler.schedule(self.now)
        if not plan.is_empty:
            found = [device.run(each) for device, each in zip(self._devices, plan.of_all(), strict=True)]
            if plan.computes:
                self._results.append(structs.replace(found[0], others=found[1:]))
        if self._results and (len(self._results) >= self._in_flight or not plan.computes):
            self.scheduler.update(self._results.popleft())
        self.ended += self.scheduler.take_finished()
        for each in self.scheduler.kv_of_ranks:
            check(each)
        return plan

    def finish(self) -> None:
        for _ in range(1000):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError("requests are stuck")

    def rank_of(self, request_id: str) -> int:
        [rank] = [rank for rank, each in enumerate(self.ranks) if each.sequences_of(request_id)]
        return rank


def prompt(length: int, first: int = 0) -> list[int]:
    return [(first + place) % 3 for place in range(length)]


def test_requests_go_to_whoever_has_fewest() -> None:
    engine = SpreadEngine(ranks=3)
    for number in range(7):
        engine.scheduler.add(make_request(f"r{number}", prompt(5, number)))
    assert [engine.rank_of(f"r{number}") for number in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    engine.finish()
    assert len(engine.ended) == 7


def test_a_prefix_draws_requests_until_its_rank_is_crowded() -> None:
    engine = SpreadEngine(max_model_len=512, num_blocks=300, max_num_batched_tokens=512)
    long = prompt(2 * SEQUENCE_TOKENS + 40)
    engine.scheduler.add(make_request("first", long))
    engine.scheduler.add(make_request("another", [2, 2, 1]))
    engine.finish()
    for number in range(4):
        engine.scheduler.add(make_request(f"r{number}", [*long, number % 3, 1]))
    # it is worth a little more than two sequences
    assert [engine.rank_of(f"r{number}") for number in range(4)] == [0, 0, 0, 1]
    engine.finish()


def test_a_rank_without_rows_is_told_so() -> None:
    engine = SpreadEngine()
    engine.scheduler.add(make_request("r0", prompt(6), max_tokens=3, ignore_eos=True))
    plan = engine.step()
    assert [each.rows for each in plan.of_all()] == [[0], []]
    assert [each.rank_tokens for each in plan.of_all()] == [[6, 0], [6, 0]]
    assert plan.of_rank(1) is plan.others[0]
    assert engine.scheduler.has_work
    engine.scheduler.add(make_request("r1", prompt(4), max_tokens=1, ignore_eos=True))
    assert engine.step().rank_tokens == [1, 4]
    assert engine.step().rank_tokens == [1, 0]
    last = engine.step()
    assert (last.computes, last.is_empty) == (False, False)
    assert [each.released for each in last.of_all()] == [[0], []]
    assert engine.scheduler.live_requests == []
    assert engine.scheduler.schedule(9.0).is_empty


def test_sequences_of_all_ranks_are_numbered_together() -> None:
    engine = SpreadEngine()
    added = [seq for number in range(4) for seq in engine.scheduler.add(make_request(f"r{number}", prompt(3), n=2))]
    assert len({seq.id for seq in added}) == 8
    assert len({engine.rank_of(seq.request.id) for seq in added}) == 2
    engine.finish()
    assert sorted(seq.id for seq in engine.ended) == list(range(8))


def test_what_is_asked_of_a_request_reaches_its_rank() -> None:
    engine = SpreadEngine()
    scheduler = engine.scheduler
    for number in range(4):
        scheduler.add(make_request(f"r{number}", prompt(3, number), max_tokens=50, ignore_eos=True))
    engine.step()
    assert scheduler.num_waiting == scheduler.num_held == 0
    assert sorted(scheduler.live_requests) == ["r0", "r1", "r2", "r3"]
    scheduler.hold("r1")
    assert (scheduler.num_held, len(scheduler.running)) == (1, 3)
    scheduler.abort("r3")
    scheduler.end(scheduler.sequences_of("r2")[0], Status.STOPPED)
    assert {seq.request.id for seq in scheduler.take_finished()} == {"r2", "r3"}
    scheduler.resume("r1")
    engine.step()
    [parent] = scheduler.sequences_of("r1")
    child = scheduler.fork(parent, last_token=2)
    assert engine.rank_of("r1") == 1
    scheduler.rewrite(child, 1)
    assert child.tokens[-1] == 1
    scheduler.abort("r9")  # nobody knows it
    for request_id in scheduler.live_requests:
        scheduler.abort(request_id)
    assert scheduler.stats.paused >= 1
    engine.finish()


def test_a_step_that_fails_is_taken_back_on_all_ranks() -> None:
    engine = SpreadEngine()
    for number in range(3):
        engine.scheduler.add(make_request(f"r{number}", prompt(9, number)))
    engine.step()
    plan = engine.scheduler.schedule(5.0)
    assert plan.computes
    assert {seq.request.id for seq in engine.scheduler.rollback(plan.step)} == {"r0", "r1", "r2"}
    assert not engine.scheduler.running
    for device in engine._devices:
        device.reset()
    engine.finish()
    for seq in engine.ended:
        assert seq.tokens[seq.num_prompt :] == expected_tokens(seq.request, seq.index, seq.max_total)


def test_settings_reach_all_ranks() -> None:
    engine = SpreadEngine(num_drafts=2)
    engine.scheduler.token_budget = 7
    engine.scheduler.drafts_are_off = True
    assert [(each.token_budget, each.drafts_are_off) for each in engine.ranks] == [(7, True), (7, True)]
    assert (engine.scheduler.token_budget, engine.scheduler.drafts_are_off) == (7, True)


ARRIVALS = st.tuples(
    st.integers(0, 6),  # steps before it comes
    st.lists(st.integers(0, 1), min_size=1, max_size=24),
    st.sampled_from([1, 1, 1, 2]),
    st.integers(1, 12),
    st.sampled_from([None, None, None, 2, 5]),  # steps until it is aborted
)


@settings(max_examples=60)
@given(
    arrivals=st.lists(ARRIVALS, min_size=1, max_size=14),
    ranks=st.integers(2, 3),
    in_flight=st.integers(1, 2),
    num_blocks=st.integers(14, 40),
    num_cpu_blocks=st.sampled_from([0, 12]),
    budget=st.integers(4, 24),
    rows=st.integers(1, 4),
)
def test_whatever_happens_every_sequence_has_its_own_tokens(
    arrivals: list[Any], ranks: int, in_flight: int, num_blocks: int, num_cpu_blocks: int, budget: int, rows: int
) -> None:
    engine = SpreadEngine(
        *(ranks, in_flight),
        num_blocks=num_blocks,
        num_cpu_blocks=num_cpu_blocks,
        block_size=2,
        max_num_batched_tokens=max(budget, rows),
        max_num_seqs=rows,
        max_model_len=40,
    )
    accepted: list[tuple[Request, int]] = []
    aborts: dict[int, list[str]] = {}
    at = 0
    for number, (wait, tokens, several, longest, lives) in enumerate(arrivals):
        for _ in range(wait):
            engine.step()
            at += 1
            for request_id in aborts.pop(at, []):
                engine.scheduler.abort(request_id)
        request = make_request(f"r{number}", tokens, n=several, max_tokens=longest)
        try:
            engine.scheduler.add(request)
        except RequestTooLarge:
            continue
        accepted.append((request, several))
        if lives is not None:
            aborts.setdefault(at + lives, []).append(request.id)
    engine.finish()
    assert len(engine.ended) == sum(several for _, several in accepted), "each ends exactly once"
    for seq in engine.ended:
        if seq.status in {Status.STOPPED, Status.LENGTH}:
            assert seq.tokens[seq.num_prompt :] == expected_tokens(seq.request, seq.index, seq.max_total)
    for kv in engine.scheduler.kv_of_ranks:
        assert kv.device.pool.num_used == kv.host.pool.num_used == 0, "blocks leaked"
