"""Serving: what a caller's key says of its requests, whatever their bodies say."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from quire.core.sampling_params import MAX_PRIORITY, SamplingParams
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.gate.account import Account
from quire.server.gate.keys_file import parse_keys
from quire.server.serving import Serving


class FakeLLM:
    """Remembers how it was asked to run things."""

    def __init__(self) -> None:
        self.opened: list[SamplingParams] = []

    async def check(self, params: SamplingParams) -> None:
        pass

    def open(self, request_id: str, prompts: Any, params: SamplingParams, **options: Any) -> object:
        self.opened.append(params)
        return SimpleNamespace()


def priority_of(key: int | None, body: int) -> int:
    """What the engine is told for a key's priority and a body's."""
    llm = FakeLLM()
    serving = Serving(llm, ("m",), None, Drain(), [])  # type: ignore[arg-type]
    call = Call("/v1/completions", [[1]], [None], SamplingParams(priority=body), "tools", False, None)  # type: ignore[arg-type]
    asyncio.run(serving.open(call, Caller("r1", Account(), priority=key)))
    return llm.opened[0].priority


@pytest.mark.parametrize(
    ("key", "body", "given"),
    [
        (-5, 0, -5),
        (-5, -MAX_PRIORITY, -5),
        (-5, 3, -2),
        (0, -1, 0),
        (0, 7, 7),
        (9, MAX_PRIORITY, MAX_PRIORITY),
        (None, -7, -7),
    ],
)
def test_a_body_is_never_more_urgent_than_its_key(key: int | None, body: int, given: int) -> None:
    assert priority_of(key, body) == given


def test_a_key_without_a_priority_cannot_outrank_one_that_has_it() -> None:
    plain, urgent = parse_keys(f"plain: {{sha256: {'a' * 64}}}\nurgent: {{sha256: {'b' * 64}, priority: -1}}", "test")
    assert priority_of(plain.priority, -MAX_PRIORITY) > priority_of(urgent.priority, 0)
