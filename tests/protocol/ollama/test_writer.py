"""Ollama's answers: pieces that add up to the whole, calls when they are whole, and how long it took."""

from typing import Any, Literal

import pytest

from quire.core.outputs import CompletionOutput, Delta, RequestMetrics, RequestOutput
from quire.protocol.ollama.writer import OllamaWriter, loaded
from quire.protocol.openai.logprobs import LogprobWriter
from quire.protocol.parsers.hermes import Hermes
from quire.protocol.parsers.reading import Reading
from quire.protocol.parsers.thinking import Thinking
from quire.protocol.parsers.tools import Function, Tools

TOOLS = Tools((Function("add"), Function("sub")))
READING = Reading(thinking=Thinking(), form=Hermes(), tools=TOOLS)
CALLS = "".join(
    f"<tool_call>{call}</tool_call>"
    for call in ('{"name": "add", "arguments": {"a": 1}}', '{"name": "sub", "arguments": {}}')
)
METRICS = RequestMetrics(1.0, 1.5, 2.0, 4.0)


def writer(kind: Literal["chat", "generate"], reading: Reading) -> OllamaWriter:
    unused: Any = None
    return OllamaWriter(kind, "m:latest", reading, LogprobWriter(unused), 0, lambda: "now")


def output(text: str) -> RequestOutput:
    said = CompletionOutput(0, text, [7, 8], finish_reason="stop")
    return RequestOutput("r", None, [1, 2, 3], None, [said], True, METRICS)


def pieces(kind: Literal["chat", "generate"], reading: Reading, text: str, size: int) -> list[Any]:
    writing, found = writer(kind, reading), []
    for start in range(0, len(text), size):
        reason: Any = "stop" if start + size >= len(text) else None
        found += writing.piece(Delta(0, 0, text[start : start + size], [1], None, reason, None))
    return [event.data for event in [*found, *writing.closing([output(text)])]]


END = {
    "done": True, "done_reason": "stop", "total_duration": 3_000_000_000, "load_duration": 500_000_000,
    "prompt_eval_count": 3, "prompt_eval_duration": 500_000_000, "eval_count": 2, "eval_duration": 2_000_000_000,
}  # fmt: skip


def test_a_whole_chat() -> None:
    head = {"model": "m:latest", "created_at": "now"}
    message = {"role": "assistant", "content": "Hello"}
    assert writer("chat", Reading()).whole([output("Hello")]) == {**head, "message": message, **END}


def test_a_whole_completion_has_its_context() -> None:
    found = writer("generate", Reading()).whole([output("Hello")])
    assert (found["response"], found["context"]) == ("Hello", [1, 2, 3, 7, 8])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_pieces_add_up_to_the_whole(size: int) -> None:
    text = f"<think>hm</think>Well.{CALLS}"
    whole = writer("chat", READING).whole([output(text)])["message"]
    *parts, last = pieces("chat", READING, text, size)
    messages = [part["message"] for part in parts]
    assert "".join(message["content"] for message in messages) == whole["content"]
    assert "".join(message.get("thinking", "") for message in messages) == whole["thinking"] == "hm"
    calls = [call for message in messages for call in message.get("tool_calls", [])]
    assert calls == whole["tool_calls"]
    assert [(call["function"]["index"], call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        (0, "add", {"a": 1}),
        (1, "sub", {}),
    ]
    assert not any(part["done"] for part in parts)
    assert last["done"]
    assert last["message"] == {"role": "assistant", "content": ""}


def test_a_call_is_sent_before_all_is_said() -> None:
    first = next(part for part in pieces("chat", READING, CALLS, 1) if "tool_calls" in part["message"])
    assert [call["function"]["name"] for call in first["message"]["tool_calls"]] == ["add"]


def test_a_failure_is_a_line_of_its_own() -> None:
    assert [event.data for event in writer("chat", Reading()).failure({"message": "no"})] == [{"error": "no"}]


def test_a_model_is_always_there() -> None:
    assert loaded("generate", "m")["done_reason"] == "load"
    assert loaded("chat", "m")["message"] == {"role": "assistant", "content": ""}
