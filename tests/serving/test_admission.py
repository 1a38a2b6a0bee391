"""Work that cannot be done in time is turned away with the time after which it may be tried again."""

import pytest

from quire.core.errors import Overloaded
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.serving.admission import COLD_STEPS, FIRST_GUESS, LEAST_STEPS, Admission
from quire.serving.journal import Entry, Journal
from tests.serving.silent_listener import SilentListener


def waiting(journal: Journal, name: str, tokens: int, work: float) -> Entry:
    request = Request(id=name, prompt=Prompt((1,) * tokens), params=SamplingParams())
    entry = Entry(request, SilentListener(), work=work)
    journal.open(entry)
    return entry


Trace = list[tuple[float, int]]
"""Seconds and tokens of one step after the other."""
ENOUGH = COLD_STEPS + LEAST_STEPS
STEADY: Trace = [(1.0, 100)] * ENOUGH


def play(admission: Admission, replica: int, trace: Trace, *, first: int = 1, waiting: int = 1) -> int:
    """An engine reports these steps; returns the number of the next one."""
    admission.stepped(replica, EngineStats(step=first - 1, waiting=waiting))
    for step, (seconds, tokens) in enumerate(trace, start=first):
        admission.stepped(replica, EngineStats(step=step, step_seconds=seconds, step_tokens=tokens, waiting=waiting))
    return first + len(trace)


def overloaded(most_wait: float | None = None) -> Admission:
    """Work of 600 tokens waits."""
    journal = Journal()
    waiting(journal, "a", 10, 600.0)
    return Admission(journal, most_tokens=10**9, most_wait=most_wait)


def test_an_idle_server_takes_anything():
    admission = Admission(Journal(), most_tokens=10, most_wait=1.0)
    admission.check(1_000_000, deadline=0.001)


def test_tokens_that_wait_are_bounded():
    journal = Journal()
    admission = Admission(journal, most_tokens=100, most_wait=None)
    entry = waiting(journal, "a", 90, 90)
    admission.check(10, None)
    with pytest.raises(Overloaded, match=r"90 tokens are waiting and 11 more would exceed the 100"):
        admission.check(11, None)
    journal.close(entry)
    admission.check(11, None)


def test_the_predicted_wait_is_the_work_over_the_rate():
    admission = overloaded(most_wait=5.0)
    assert admission.predicted_wait() == 0.0  # nobody knows the rate yet
    play(admission, 0, STEADY)
    assert admission.predicted_wait() == pytest.approx(6.0)
    with pytest.raises(Overloaded, match="about 6 s") as refused:
        admission.check(1, None)
    assert refused.value.retry_after == pytest.approx(1.0)


def test_no_wait_is_predicted_from_a_few_steps():
    admission = overloaded(most_wait=0.001)
    after = play(admission, 0, STEADY[:-1])
    admission.check(1, deadline=0.001)
    play(admission, 0, STEADY[:1], first=after)
    with pytest.raises(Overloaded):
        admission.check(1, None)


def test_no_wait_is_predicted_from_many_steps_that_took_no_time():
    admission = overloaded()
    after = play(admission, 0, [(0.001, 1)] * 500)
    assert admission.predicted_wait() == 0.0
    play(admission, 0, [(0.001, 1)] * 1000, first=after)
    assert admission.predicted_wait() == pytest.approx(0.6)


def test_cold_steps_do_not_set_the_rate():
    admission = overloaded()
    cold: Trace = [(60.0, 16), (25.0, 4), (10.0, 4)]
    after = play(admission, 0, cold)
    assert admission.predicted_wait() == 0.0
    play(admission, 0, [(0.1, 100)] * 30, first=after)
    assert admission.predicted_wait() == pytest.approx(0.6)


def test_a_step_that_compiles_later_does_not_set_the_rate():
    admission = overloaded()
    after = play(admission, 0, [(0.1, 100)] * 30)
    after = play(admission, 0, [(30.0, 100)], first=after)
    assert admission.predicted_wait() == pytest.approx(0.6)
    play(admission, 0, [(30.0, 100)] * 20, first=after)  # but an engine that stays slow is slow
    assert admission.predicted_wait() == pytest.approx(180, rel=0.01)


def test_an_engine_with_little_to_do_does_not_show_how_fast_it_is():
    admission = overloaded()
    after = play(admission, 0, [(0.1, 1)] * 1000, waiting=0)
    after = play(admission, 0, [(0.1, 100)], first=after)
    assert admission.predicted_wait() == 0.0
    play(admission, 0, [(0.1, 100)] * 20, first=after)
    assert admission.predicted_wait() == pytest.approx(0.6)


def test_a_cold_start_with_two_engines_of_which_one_is_killed():
    """Seen: 429, "would wait about 1098 s", while all others were answered within 36 s."""
    journal = Journal()
    admission = Admission(journal, most_tokens=10**9, most_wait=600.0)
    for number in range(40):
        waiting(journal, str(number), 20, 276.0)
    cold: Trace = [(2.0, 20), (1.5, 20)]
    after = play(admission, 0, cold)
    play(admission, 1, cold)
    admission.lost(1)
    admission.check(20, deadline=60.0)
    after = play(admission, 0, [(0.05, 16)] * 60, first=after)
    assert admission.predicted_wait() == pytest.approx(40 * 276 / 320)
    admission.check(20, deadline=60.0)
    admission.stepped(1, EngineStats(waiting=1))  # its replacement is ready, and has not taken a step
    assert admission.predicted_wait() == pytest.approx(40 * 276 / 640)


def test_engines_add_up_and_a_lost_one_no_longer_counts():
    admission = overloaded()
    play(admission, 0, STEADY)
    play(admission, 1, STEADY)
    assert admission.predicted_wait() == pytest.approx(3.0)
    admission.lost(1)
    assert admission.predicted_wait() == pytest.approx(6.0)


def test_the_rate_of_a_lost_engine_is_forgotten():
    admission = overloaded()
    play(admission, 0, STEADY)
    admission.lost(0)
    play(admission, 0, STEADY[:1])
    assert admission.predicted_wait() == 0.0


def test_a_request_that_would_miss_its_deadline_is_refused_at_once():
    admission = overloaded()
    play(admission, 0, STEADY)
    admission.check(1, deadline=7.0)
    with pytest.raises(Overloaded, match="deadline"):
        admission.check(1, deadline=2.0)


def test_an_engine_that_takes_in_all_that_comes_makes_nobody_wait():
    admission = overloaded(most_wait=1.0)
    play(admission, 0, STEADY)
    admission.stepped(1, EngineStats(waiting=0))
    assert admission.predicted_wait() == 0.0


def test_the_same_step_told_twice_counts_once():
    admission = overloaded()
    last = play(admission, 0, STEADY) - 1
    admission.stepped(0, EngineStats(step=last, step_seconds=1.0, step_tokens=10**6, waiting=1))
    assert admission.predicted_wait() == pytest.approx(6.0)


def test_work_follows_the_answers_seen_and_the_limit_asked_for():
    admission = Admission(Journal(), most_tokens=1, most_wait=None)
    assert admission.work(10, SamplingParams(max_tokens=None)) == 10 + FIRST_GUESS
    assert admission.work(10, SamplingParams(max_tokens=5, n=2)) == 20
    for _ in range(500):
        admission.answered(20)
    assert admission.work(0, SamplingParams(max_tokens=None)) == pytest.approx(20, abs=1)
