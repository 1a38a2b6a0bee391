"""Who computes a prompt, who answers, and who is asked for KV."""

import msgspec
import pytest

from quire.core.pooling_params import PoolingParams
from quire.core.prompt import Prompt
from quire.core.request import Emitted, Request
from quire.core.sampling_params import SamplingParams
from quire.serving.journal import Entry, Journal
from quire.serving.placement import LEAST_SPLIT, Placement, first_token_only
from tests.serving.fake_client import STARTED, FakeClient
from tests.serving.silent_listener import SilentListener


def engine(number: int, role: str = "both", kv: bool = True) -> FakeClient:
    client = FakeClient(number)
    client.says(msgspec.structs.replace(STARTED, role=role, kv_address=f"unix:///{number}" if kv else ""))
    return client


def entry(length: int = 500, name: str = "r", **params) -> Entry:
    params = {"max_tokens": 20, **params}
    return Entry(
        Request(id=name, prompt=Prompt(tuple(range(length))), params=SamplingParams(**params)), SilentListener()
    )


@pytest.fixture
def mixed() -> list[FakeClient]:
    return [engine(0, "prefill"), engine(1, "prefill"), engine(2, "decode"), engine(3, "decode")]


def roles(placed) -> tuple[str, str | None]:
    return placed.client.role, None if placed.decoder is None else placed.decoder.role


def test_a_prompt_goes_to_one_engine_and_its_answer_to_another(mixed):
    assert roles(Placement("prefix").place(entry(), mixed, Journal())) == ("prefill", "decode")


@pytest.mark.parametrize("strategy", ["prefix", "least-loaded", "round-robin"])
def test_all_engines_get_their_turn(mixed, strategy):
    placement, journal = Placement(strategy), Journal()
    seen = set()
    for number in range(4):
        one = Entry(
            Request(id=str(number), prompt=Prompt((number,) * 500), params=SamplingParams(max_tokens=20)),
            SilentListener(),
        )
        placed = placement.place(one, mixed, journal)
        one.client, one.decoder = placed.client, placed.decoder
        journal.open(one)
        seen |= {placed.client.number, placed.decoder.number}
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "one",
    [
        entry(LEAST_SPLIT - 1),
        entry(max_tokens=1),
        entry(prompt_logprobs=1),
        entry(use_prefix_cache=False),
        entry(length=STARTED.max_model_len - 1),
    ],
    ids=["short", "one token", "prompt logprobs", "no cache", "as long as can be"],
)
def test_some_are_not_worth_the_way_or_cannot_take_it(mixed, one):
    placed = Placement("prefix").place(one, mixed, Journal())
    assert roles(placed) == ("decode", None)


def test_what_is_only_read_has_no_answer_to_move(mixed):
    one = entry()
    one.request = msgspec.structs.replace(one.request, pooling=PoolingParams())
    assert roles(Placement("prefix").place(one, mixed, Journal())) == ("decode", None)


def test_who_has_most_of_a_prompt_computes_the_rest(mixed):
    placement = Placement("prefix")
    first = placement.place(entry(), mixed, Journal())
    again = placement.place(entry(560), mixed, Journal())
    assert (again.client, again.decoder) == (first.decoder, None)
    longer = placement.place(entry(900), mixed, Journal())
    assert (longer.client, longer.decoder) == (first.client, first.decoder)


def test_roles_are_preferences(mixed):
    assert roles(Placement("prefix").place(entry(), mixed[:2], Journal())) == ("prefill", None)
    assert roles(Placement("prefix").place(entry(), mixed[2:], Journal())) == ("decode", None)


def test_an_engine_that_cannot_be_reached_for_kv_does_it_all():
    ready = [engine(0, "prefill"), engine(1, "decode", kv=False)]
    assert roles(Placement("prefix").place(entry(), ready, Journal())) == ("decode", None)


def test_a_peer_with_more_of_the_prefix_is_asked_for_it():
    here, there = engine(0), engine(1)
    placement, journal = Placement("prefix"), Journal()
    first = placement.place(entry(), [here, there], journal)
    assert first.holder is None
    busy = entry(10_000, "busy")
    busy.client = first.client
    journal.open(busy)
    again = placement.place(entry(name="again"), [here, there], journal)
    assert again.client is not first.client
    assert again.holder is first.client


def test_who_is_lost_has_nothing():
    here, there = engine(0), engine(1)
    placement, journal = Placement("prefix"), Journal()
    first = placement.place(entry(), [here, there], journal).client
    placement.forget(first)
    busy = entry(10_000, "busy")
    busy.client = first
    journal.open(busy)
    assert placement.place(entry(name="again"), [here, there], journal).holder is None


def test_the_first_token_counts_from_where_a_request_stands():
    request = entry(min_tokens=9).request
    assert first_token_only(request).params.max_tokens == first_token_only(request).params.min_tokens == 1
    moved = msgspec.structs.replace(request, resume=(Emitted(0, (7, 8, 9)),))
    assert first_token_only(moved).params.max_tokens == 4
    assert first_token_only(moved).resume == moved.resume
