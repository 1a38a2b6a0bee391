"""Work that cannot be done in time is turned away with the time after which it may be tried again."""

import pytest

from quire.core.errors import Overloaded
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.serving.admission import FIRST_GUESS, Admission
from quire.serving.journal import Entry, Journal
from tests.serving.silent_listener import SilentListener


def waiting(journal: Journal, name: str, tokens: int, work: float) -> Entry:
    request = Request(id=name, prompt=Prompt((1,) * tokens), params=SamplingParams())
    entry = Entry(request, SilentListener(), work=work)
    journal.open(entry)
    return entry


def busy(step: int = 1, seconds: float = 1.0, tokens: int = 100) -> EngineStats:
    return EngineStats(step=step, step_seconds=seconds, step_tokens=tokens, waiting=1)


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
    journal = Journal()
    admission = Admission(journal, most_tokens=10**9, most_wait=5.0)
    waiting(journal, "a", 10, 600.0)
    assert admission.predicted_wait() == 0.0  # nobody knows the rate yet
    admission.stepped(0, busy())
    assert admission.predicted_wait() == pytest.approx(6.0)
    with pytest.raises(Overloaded, match="about 6 s") as refused:
        admission.check(1, None)
    assert refused.value.retry_after == pytest.approx(1.0)


def test_engines_add_up_and_a_lost_one_no_longer_counts():
    journal = Journal()
    admission = Admission(journal, most_tokens=10**9, most_wait=None)
    waiting(journal, "a", 10, 600.0)
    admission.stepped(0, busy())
    admission.stepped(1, busy())
    assert admission.predicted_wait() == pytest.approx(3.0)
    admission.lost(1)
    assert admission.predicted_wait() == pytest.approx(6.0)


def test_a_request_that_would_miss_its_deadline_is_refused_at_once():
    journal = Journal()
    admission = Admission(journal, most_tokens=10**9, most_wait=None)
    waiting(journal, "a", 10, 600.0)
    admission.stepped(0, busy())
    admission.check(1, deadline=7.0)
    with pytest.raises(Overloaded, match="deadline"):
        admission.check(1, deadline=2.0)


def test_an_engine_that_takes_in_all_that_comes_makes_nobody_wait():
    journal = Journal()
    admission = Admission(journal, most_tokens=10**9, most_wait=1.0)
    waiting(journal, "a", 10, 600.0)
    admission.stepped(0, EngineStats(step=1, step_seconds=1.0, step_tokens=100, waiting=0))
    assert admission.predicted_wait() == 0.0


def test_the_same_step_told_twice_counts_once():
    journal = Journal()
    admission = Admission(journal, most_tokens=10**9, most_wait=None)
    waiting(journal, "a", 10, 600.0)
    admission.stepped(0, busy())
    admission.stepped(0, busy(tokens=10**6))
    assert admission.predicted_wait() == pytest.approx(6.0)


def test_work_follows_the_answers_seen_and_the_limit_asked_for():
    admission = Admission(Journal(), most_tokens=1, most_wait=None)
    assert admission.work(10, SamplingParams(max_tokens=None)) == 10 + FIRST_GUESS
    assert admission.work(10, SamplingParams(max_tokens=5, n=2)) == 20
    for _ in range(500):
        admission.answered(20)
    assert admission.work(0, SamplingParams(max_tokens=None)) == pytest.approx(20, abs=1)
