"""Serving: what a caller's key says of its requests, whatever their bodies say."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from quire.config.server import ServerConfig
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import MAX_PRIORITY, SamplingParams
from quire.observe.metrics import Metrics
from quire.protocol.ignored import MOST_NAMES
from quire.server.call import Call
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.errors import UnknownModel
from quire.server.gate.account import Account
from quire.server.gate.keys_file import parse_keys
from quire.server.serving import Serving


class FakeLLM:
    """Remembers how it was asked to run things."""

    def __init__(self) -> None:
        self.opened: list[SamplingParams] = []
        self.metrics = Metrics("m")
        self.adapters = None
        self.config = SimpleNamespace(server=ServerConfig())
        self.grammars = self

    async def check(self, params: SamplingParams) -> None:
        """Nothing is wrong with grammars."""

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


CALLER = Caller("r1", Account())


def names_of(*names: str) -> Serving:
    return Serving(FakeLLM(), names, None, Drain(), [])  # type: ignore[arg-type]


def test_answers_carry_the_name_that_was_asked_for() -> None:
    serving = names_of("m", "alias")
    assert [serving.check_model(name, CALLER) for name in ("m", "alias", None)] == ["m", "alias", "m"]
    with pytest.raises(UnknownModel, match="'m' does"):
        serving.check_model("claude-opus", CALLER)


def test_any_name() -> None:
    serving = names_of("m", "*")
    assert serving.names == ("m",)
    assert serving.check_model("claude-opus", CALLER) == "claude-opus"
    with pytest.raises(UnknownModel, match="this key"):
        serving.check_model("claude-opus", Caller("r1", Account(), models=frozenset({"other"})))


def test_what_was_ignored_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    serving = names_of("m")
    ignored = serving.new_ignored()
    for name in ("store", "messages[0].mood", "messages[1].mood"):
        ignored.note(name, InvalidRequest)
    writer: Any = None
    call = Call("/v1/completions", [[1]], [None], SamplingParams(), "tools", False, writer, ignored=ignored)
    with caplog.at_level("INFO"):
        for _ in range(2):
            asyncio.run(serving.open(call, CALLER))
    assert [record.getMessage().count("messages[].mood") for record in caplog.records] == [0, 1]
    counted = serving.metrics.figures().samples.numbers["quire_ignored_fields_total"]
    assert counted == {("store",): 2, ("messages[].mood",): 2}
    for number in range(1000):
        ignored.note(f"x{number}", InvalidRequest)
    assert len(list(ignored)) == MOST_NAMES + 1
