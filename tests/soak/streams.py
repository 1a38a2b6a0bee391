"""Streams put together again, a class for each API's events: the whole answer, how often it ended, what went wrong."""

import json
from collections import defaultdict
from typing import Any, Protocol

from tests.soak.answer import comparable


class Stream(Protocol):
    """What was heard of a stream so far."""

    pieces: int
    """Events that carried something of the answer."""
    ends: int
    """How often it said that it was over: once, if all is well."""
    error: dict[str, Any] | None

    def hear(self, line: str) -> None: ...

    def answer(self) -> Any: ...


class Chunks:
    """OpenAI's chats and completions."""

    def __init__(self) -> None:
        self.pieces = self.ends = 0
        self.error: dict[str, Any] | None = None
        self._choices: dict[int, dict[str, Any]] = defaultdict(lambda: {"text": "", "reason": [], "logprobs": []})
        self._calls: dict[tuple[int, int], dict[str, str]] = defaultdict(lambda: {"name": "", "arguments": ""})
        self._usage: Any = None

    def hear(self, line: str) -> None:
        if not line.startswith("data: "):
            return
        if line == "data: [DONE]":
            self.ends += 1
            return
        self.take(json.loads(line.removeprefix("data: ")))

    def take(self, told: dict[str, Any]) -> None:
        if "error" in told:
            self.error = told["error"]
            return
        self._usage = told.get("usage") or self._usage
        for choice in told["choices"]:
            self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        whole, delta = self._choices[choice["index"]], choice.get("delta", {})
        piece = choice["text"] if "text" in choice else delta.get("content") or ""
        self.pieces += bool(piece)
        whole["text"] += piece
        if choice.get("finish_reason"):
            whole["reason"].append(choice["finish_reason"])
        if (logprobs := choice.get("logprobs")) is not None:
            whole["logprobs"] += logprobs.get("content") or []
        for call in delta.get("tool_calls") or []:
            so_far = self._calls[choice["index"], call["index"]]
            so_far["name"] += call["function"].get("name") or ""
            so_far["arguments"] += call["function"].get("arguments") or ""
            self.pieces += 1

    def answer(self) -> Any:
        calls = {f"{choice} {place}": call for (choice, place), call in sorted(self._calls.items())}
        choices = {str(index): whole for index, whole in sorted(self._choices.items())}
        return {"choices": choices, "calls": calls, "usage": comparable(self._usage)}


class ResponseEvents:
    """OpenAI's Responses: the last event has the whole answer, which must be what the others said."""

    def __init__(self) -> None:
        self.pieces = self.ends = 0
        self.error: dict[str, Any] | None = None
        self._text, self._whole = "", None

    def hear(self, line: str) -> None:
        if not line.startswith("data: ") or line == "data: [DONE]":
            return
        event = json.loads(line.removeprefix("data: "))
        if event["type"] == "response.output_text.delta":
            self._text += event["delta"]
            self.pieces += 1
        elif event["type"] in ("response.completed", "response.incomplete"):
            self._whole = event["response"]
            self.ends += 1
        elif event["type"] in ("error", "response.failed"):
            self.error = event.get("error") or event.get("response", {}).get("error") or event

    def answer(self) -> Any:
        return {"text": self._text, "whole": comparable(self._whole)}


class MessageEvents:
    """Anthropic's."""

    def __init__(self) -> None:
        self.pieces = self.ends = 0
        self.error: dict[str, Any] | None = None
        self._text, self._reason, self._usage = "", None, {}

    def hear(self, line: str) -> None:
        if not line.startswith("data: "):
            return
        event = json.loads(line.removeprefix("data: "))
        if event["type"] == "content_block_delta":
            self._text += event["delta"].get("text", "")
            self.pieces += 1
        elif event["type"] == "message_delta":
            self._reason, self._usage = event["delta"]["stop_reason"], event["usage"]
        elif event["type"] == "message_stop":
            self.ends += 1
        elif event["type"] == "error":
            self.error = event["error"]

    def answer(self) -> Any:
        return {"text": self._text, "reason": self._reason, "usage": comparable(self._usage)}


class Lines:
    """Ollama's: a JSON object a line."""

    def __init__(self) -> None:
        self.pieces = self.ends = 0
        self.error: dict[str, Any] | None = None
        self._text, self._last = "", {}

    def hear(self, line: str) -> None:
        if not line:
            return
        told = json.loads(line)
        if "error" in told:
            self.error = {"message": told["error"], "code": None}
            return
        self._text += told["message"]["content"]
        self.pieces += 1
        if told["done"]:
            self.ends += 1
            self._last = told

    def answer(self) -> Any:
        return {"text": self._text, "last": comparable(self._last)}


STREAMS: dict[str, type[Stream]] = {
    "chunks": Chunks,
    "responses": ResponseEvents,
    "messages": MessageEvents,
    "lines": Lines,
}
