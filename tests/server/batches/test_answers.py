"""Requests of a batch: behind everyone else, as their sender, and never streamed."""

import asyncio
from typing import Any

import pytest

from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.server.batches import answers as module
from quire.server.batches.answers import BATCH_PRIORITY, batch_answers
from quire.server.batches.record import Sender
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.gate.account import Account


class Echo:
    """A writer of what was made."""

    def whole(self, outputs: Any) -> dict[str, Any]:
        return {"made": outputs}


class FakeServing:
    """Remembers what it was asked to run."""

    def __init__(self) -> None:
        self.ran: list[tuple[Call, Caller]] = []

    async def complete(self, call: Call, caller: Caller) -> list[str]:
        self.ran.append((call, caller))
        return ["an output"]


def answer(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], sender: Sender
) -> tuple[dict[str, Any], Call, Caller, Account]:
    async def read_call(given: Any, serving: Any, caller: Caller) -> Call:
        params = SamplingParams(priority=given.get("priority", 0))
        return Call("/v1/chat/completions", [[1]], [None], params, "tools", given.get("stream", False), Echo())  # type: ignore[arg-type]

    monkeypatch.setattr(module.chat, "read_call", read_call)
    serving, account = FakeServing(), Account()
    answers = batch_answers(serving, lambda tenant: account)  # type: ignore[arg-type]
    made = asyncio.run(answers["/v1/chat/completions"](body, sender, "batch-1"))
    call, caller = serving.ran[0]
    return made, call, caller, account


def test_a_request_goes_behind_those_who_are_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, caller, _ = answer(monkeypatch, {"priority": 5}, Sender(tenant="a", priority=-100))
    assert made == {"made": ["an output"]}
    assert caller.priority == BATCH_PRIORITY  # a key's own priority would put it ahead


def test_a_request_is_its_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender(tenant="a", cache_salt="salt", models=("m",))
    _, _, caller, account = answer(monkeypatch, {}, sender)
    assert (caller.tenant, caller.cache_salt, caller.models) == ("a", "salt", frozenset({"m"}))
    assert caller.account is account
    assert caller.request_id == "batch-1"


def test_a_stream_has_no_place_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest) as caught:
        answer(monkeypatch, {"stream": True}, Sender(tenant="a"))
    assert caught.value.field == "stream"
