"""Requests under which engines die run alone until one is proven to be the cause."""

from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.engine.serving.journal import Entry
from quire.engine.serving.probation import SUSPECT_AFTER, Probation
from tests.engine.serving.silent_listener import SilentListener


def entries(*names: str) -> list[Entry]:
    return [Entry(Request(id=name, prompt=(1,), params=SamplingParams()), SilentListener()) for name in names]


def lose(probation: Probation, orphans: list[Entry]) -> Entry | None:
    for entry in orphans:
        entry.losses += 1
    return probation.engine_lost(orphans)


def test_losses_below_the_limit_change_nothing():
    probation, live = Probation(), entries("a", "b")
    for _ in range(SUSPECT_AFTER - 1):
        assert lose(probation, live) is None
    assert not probation.is_on
    assert not any(probation.keeps_waiting(entry) for entry in live)


def test_suspects_run_one_at_a_time_and_the_guilty_one_fails():
    probation, live = Probation(), entries("a", "killer", "c")
    a, killer, c = live
    for _ in range(SUSPECT_AFTER):
        lose(probation, live)
    assert [probation.keeps_waiting(entry) for entry in live] == [False, True, True]
    a.losses = 0  # it got a token
    assert probation.cleared()
    assert [probation.keeps_waiting(entry) for entry in live] == [True, False, True]
    assert not probation.cleared()
    assert lose(probation, [killer]) is killer
    assert not probation.keeps_waiting(c)
    c.losses = 0
    assert probation.cleared()
    assert not probation.is_on


def test_a_request_that_came_later_waits_too():
    probation, live = Probation(), entries("a")
    for _ in range(SUSPECT_AFTER):
        lose(probation, live)
    [late] = entries("late")
    assert probation.keeps_waiting(late)


def test_a_suspect_that_ended_meanwhile_is_passed_over():
    probation, live = Probation(), entries("a", "b")
    for _ in range(SUSPECT_AFTER):
        lose(probation, live)
    live[1].emitted.clear()
    live[0].losses = 0
    assert probation.cleared()
    assert not probation.is_on
