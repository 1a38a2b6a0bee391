"""Requests go where their prefix is cached, unless that engine has too much to do; or by load alone, or in turn."""

from collections import Counter

from quire.core.adapter import AdapterRef
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.serving.routing import ADAPTER_TOKENS, CHUNK, Routing

SYSTEM = tuple(range(4 * CHUNK))


def request(name: str, prompt: tuple[int, ...], salt: str | None = None) -> Request:
    return Request(id=name, prompt=Prompt(prompt), params=SamplingParams(cache_salt=salt))


class Given:
    """The tokens that each engine was given and has not computed."""

    def __init__(self) -> None:
        self._loads: Counter[int] = Counter()

    def loads(self) -> Counter[int]:
        return self._loads

    def give(self, asked: Request, replica: int) -> None:
        self._loads[replica] += len(asked.prompt.tokens)


def test_the_same_prefix_goes_to_the_same_engine():
    routing, given = Routing(), Given()
    first = routing.choose(request("a", (*SYSTEM, 1)), [0, 1, 2], given)
    assert all(routing.choose(request(f"r{i}", (*SYSTEM, i)), [0, 1, 2], given) == first for i in range(5))


def test_without_a_prefix_the_least_loaded_one_gets_it():
    routing, given = Routing(), Given()
    given.give(request("busy", tuple(range(50))), 0)
    assert routing.choose(request("a", (1, 2, 3)), [0, 1], given) == 1


def test_a_crowd_at_the_cached_prefix_spills_over():
    routing, given = Routing(), Given()
    chosen = []
    for number in range(8):
        asked = request(f"r{number}", (*SYSTEM, number))
        replica = routing.choose(asked, [0, 1], given)
        given.give(asked, replica)
        chosen.append(replica)
    assert set(chosen) == {0, 1}


def test_a_salt_makes_another_prefix():
    routing, given = Routing(), Given()
    given.give(request("x", (1,)), 1)
    first = routing.choose(request("a", SYSTEM, "tenant"), [0, 1], given)
    given.give(request("y", tuple(range(100))), first)
    assert routing.choose(request("b", SYSTEM, "other"), [0, 1], given) != first


def test_what_a_lost_engine_had_cached_is_forgotten():
    routing, given = Routing(), Given()
    given.give(request("x", (1,)), 1)
    first = routing.choose(request("a", SYSTEM), [0, 1], given)
    routing.forget(first)
    given.give(request("y", (1, 2)), first)
    assert routing.choose(request("b", SYSTEM), [0, 1], given) != first


def test_an_engine_that_is_not_ready_gets_nothing():
    routing, given = Routing(), Given()
    first = routing.choose(request("a", SYSTEM), [0, 1], given)
    assert routing.choose(request("b", SYSTEM), [1 - first], given) == 1 - first


def test_least_loaded_does_not_look_at_prefixes():
    routing, given = Routing("least-loaded"), Given()
    asked = request("a", SYSTEM)
    assert routing.choose(asked, [0, 1], given) == 0
    given.give(asked, 0)
    assert routing.choose(request("b", SYSTEM), [0, 1], given) == 1


def test_in_turn_leaves_out_engines_that_are_not_ready():
    routing, given = Routing("round-robin"), Given()
    turns = [[0, 1, 2], [0, 1, 2], [0, 2], [0, 1, 2], [1, 2], [0, 1, 2]]
    assert [routing.choose(request("a", SYSTEM), ready, given) for ready in turns] == [0, 1, 2, 0, 1, 2]


def test_an_adapter_goes_where_it_has_been_unless_that_engine_has_too_much_to_do():
    routing, given = Routing(), Given()

    def adapted(name: str, adapter: str) -> Request:
        return Request(id=name, prompt=Prompt((1, 2), adapter=AdapterRef(adapter, "/x", "1")), params=SamplingParams())

    first = routing.choose(adapted("a", "x"), [0, 1], given)
    given.give(request("busy", tuple(range(100))), first)
    assert routing.choose(adapted("b", "x"), [0, 1], given) == first
    assert routing.choose(adapted("c", "y"), [0, 1], given) != first
    given.give(request("busier", tuple(range(2 * ADAPTER_TOKENS))), first)
    assert routing.choose(adapted("d", "x"), [0, 1], given) != first
    routing.forget(first)
