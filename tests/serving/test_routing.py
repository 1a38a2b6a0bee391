"""Requests go where their prefix is cached, unless that engine has too much to do."""

from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.serving.journal import Entry, Journal
from quire.serving.routing import CHUNK, Routing
from tests.serving.fake_client import FakeClient
from tests.serving.silent_listener import SilentListener

SYSTEM = tuple(range(4 * CHUNK))


def request(name: str, prompt: tuple[int, ...], salt: str | None = None) -> Request:
    return Request(id=name, prompt=Prompt(prompt), params=SamplingParams(cache_salt=salt))


def give(journal: Journal, asked: Request, replica: int) -> None:
    entry = Entry(asked, SilentListener())
    entry.client = FakeClient(replica)
    journal.open(entry)


def test_the_same_prefix_goes_to_the_same_engine():
    routing, journal = Routing(), Journal()
    first = routing.choose(request("a", (*SYSTEM, 1)), [0, 1, 2], journal)
    assert all(routing.choose(request(f"r{i}", (*SYSTEM, i)), [0, 1, 2], journal) == first for i in range(5))


def test_without_a_prefix_the_least_loaded_one_gets_it():
    routing, journal = Routing(), Journal()
    give(journal, request("busy", tuple(range(50))), 0)
    assert routing.choose(request("a", (1, 2, 3)), [0, 1], journal) == 1


def test_a_crowd_at_the_cached_prefix_spills_over():
    routing, journal = Routing(), Journal()
    chosen = []
    for number in range(8):
        asked = request(f"r{number}", (*SYSTEM, number))
        replica = routing.choose(asked, [0, 1], journal)
        give(journal, asked, replica)
        chosen.append(replica)
    assert set(chosen) == {0, 1}


def test_a_salt_makes_another_prefix():
    routing, journal = Routing(), Journal()
    give(journal, request("x", (1,)), 1)
    first = routing.choose(request("a", SYSTEM, "tenant"), [0, 1], journal)
    give(journal, request("y", tuple(range(100))), first)
    assert routing.choose(request("b", SYSTEM, "other"), [0, 1], journal) != first


def test_what_a_lost_engine_had_cached_is_forgotten():
    routing, journal = Routing(), Journal()
    give(journal, request("x", (1,)), 1)
    first = routing.choose(request("a", SYSTEM), [0, 1], journal)
    routing.forget(first)
    give(journal, request("y", (1, 2)), first)
    assert routing.choose(request("b", SYSTEM), [0, 1], journal) != first


def test_an_engine_that_is_not_ready_gets_nothing():
    routing, journal = Routing(), Journal()
    first = routing.choose(request("a", SYSTEM), [0, 1], journal)
    assert routing.choose(request("b", SYSTEM), [1 - first], journal) == 1 - first
