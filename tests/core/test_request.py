"""Requests, plans and results cross process borders unchanged."""

import msgspec
import pytest

from quire.core.adapter import AdapterRef
from quire.core.errors import InvalidRequest
from quire.core.plan import Admission, Move, StepPlan, TableDelta
from quire.core.prompt import MediaKey, Prompt
from quire.core.request import Emitted, Request
from quire.core.result import StepResult
from quire.core.sampling_params import SamplingParams


def round_trip(value):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))


def test_messages_survive_the_wire():
    request = Request(
        id="r",
        prompt=Prompt((1, 2), (MediaKey(1, b"\x00\xff"),), AdapterRef("a", "/a", "1")),
        params=SamplingParams(stop="x"),
        resume=(Emitted(0, (7, 8)),),
    )
    admission = Admission(3, "r", 0, request.params, [1, 2], 2, 0, [[5, 6]])
    plan = StepPlan(
        step=9,
        swap_out=[Move(1, 2)],
        copies=[Move(3, 4)],
        admitted=[admission],
        table_deltas=[TableDelta(3, 1, [[7]])],
        rows=[3],
        counts=[2],
        num_sampling=1,
        num_drafts=[1],
    )
    result = StepResult(step=9, tokens=[4], num_proposed=[5], elapsed=0.25)
    for message in (request, plan, result):
        assert round_trip(message) == message


def test_a_plan_of_decodes_is_small():
    plan = StepPlan(step=1, rows=list(range(128)), counts=[1] * 128, num_sampling=128)
    assert len(msgspec.msgpack.encode(plan)) < 3 * 128
    assert plan.num_tokens == 128
    assert StepPlan(step=1).is_empty
    assert not plan.is_empty


def test_an_empty_prompt_and_negative_ids_are_refused():
    with pytest.raises(InvalidRequest, match="the prompt is empty"):
        Prompt(())
    with pytest.raises(InvalidRequest, match="token id -3 in the prompt is negative"):
        Prompt((5, -3))


def test_stop_ids_follow_ignore_eos():
    params = {"stop_token_ids": [9]}
    request = Request(id="r", prompt=Prompt((1,)), params=SamplingParams(**params), eos_token_ids=(2,))
    assert request.stop_ids() == {2, 9}
    request = Request(id="r", prompt=Prompt((1,)), params=SamplingParams(ignore_eos=True, **params), eos_token_ids=(2,))
    assert request.stop_ids() == {9}


def test_a_deadline_counts_from_arrival():
    assert Request(id="r", prompt=Prompt((1,)), params=SamplingParams(deadline=2.5), arrival=10.0).deadline() == 12.5
    assert Request(id="r", prompt=Prompt((1,)), params=SamplingParams()).deadline() is None
