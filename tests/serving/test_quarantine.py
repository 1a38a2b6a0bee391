"""Requests under which engines die run alone until one is proven to be the cause."""

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.serving.journal import Entry
from quire.serving.quarantine import SUSPECT_AFTER, Quarantine
from tests.serving.silent_listener import SilentListener


def entries(*names: str) -> list[Entry]:
    return [Entry(Request(id=name, prompt=Prompt((1,)), params=SamplingParams()), SilentListener()) for name in names]


def lose(quarantine: Quarantine, orphans: list[Entry]) -> Entry | None:
    for entry in orphans:
        entry.losses += 1
    return quarantine.engine_lost(orphans)


def test_losses_below_the_limit_change_nothing():
    quarantine, live = Quarantine(), entries("a", "b")
    for _ in range(SUSPECT_AFTER - 1):
        assert lose(quarantine, live) is None
    assert not quarantine.is_on
    assert not any(quarantine.keeps_waiting(entry) for entry in live)


def test_suspects_run_one_at_a_time_and_the_guilty_one_fails():
    quarantine, live = Quarantine(), entries("a", "killer", "c")
    a, killer, c = live
    for _ in range(SUSPECT_AFTER):
        lose(quarantine, live)
    assert [quarantine.keeps_waiting(entry) for entry in live] == [False, True, True]
    a.losses = 0  # it got a token
    assert quarantine.cleared()
    assert [quarantine.keeps_waiting(entry) for entry in live] == [True, False, True]
    assert not quarantine.cleared()
    assert lose(quarantine, [killer]) is killer
    assert not quarantine.keeps_waiting(c)
    c.losses = 0
    assert quarantine.cleared()
    assert not quarantine.is_on


def test_a_request_that_came_later_waits_too():
    quarantine, live = Quarantine(), entries("a")
    for _ in range(SUSPECT_AFTER):
        lose(quarantine, live)
    [late] = entries("late")
    assert quarantine.keeps_waiting(late)


def test_a_suspect_that_ended_meanwhile_is_passed_over():
    quarantine, live = Quarantine(), entries("a", "b")
    for _ in range(SUSPECT_AFTER):
        lose(quarantine, live)
    live[1].emitted.clear()
    live[0].losses = 0
    assert quarantine.cleared()
    assert not quarantine.is_on
