"""Answers in the shapes of Anthropic's Messages API: one message, or the events that build it up."""

from collections.abc import Sequence
from typing import Any

from quire.core.outputs import CompletionOutput, Delta, RequestOutput
from quire.protocol.anthropic.blocks import Blocks
from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.reading import Reading
from quire.protocol.writer import Body, Event, Writer

_ERROR_TYPES = {
    "invalid_request_error": "invalid_request_error",
    "permission_error": "permission_error",
    "rate_limit_error": "rate_limit_error",
    "timeout_error": "timeout_error",
}
"""OpenAI's words for errors that Anthropic's clients know too; all others are the server's fault."""


class MessagesWriter(Writer):
    """One message of blocks."""

    def __init__(self, identity: str, model: str, *, prompt_tokens: int, max_tokens: int, reading: Reading) -> None:
        self._identity = identity
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._reading = reading
        self._parser = reading.parser(0)
        self._blocks = Blocks()

    def opening(self) -> list[Event]:
        message = self._message([], None, None, _usage(self._prompt_tokens, 0, 0))
        # where nothing but text can come, its block is there from the beginning
        begun = self._blocks.open_text() if self._reading.is_plain else []
        return [_event("message_start", message=message), *map(_named, begun), _event("ping")]

    def piece(self, delta: Delta) -> list[Event]:
        return [_named(event) for event in self._blocks.take(self._parts(delta))]

    def plain_text(self, delta: Delta) -> str:
        return "".join(part.text for part in self._parts(delta) if part.kind == "content")

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        reason, stop_sequence = self._stopped(outputs[0].outputs[0], self._blocks)
        return [
            *map(_named, self._blocks.close()),
            _event(
                "message_delta",
                delta={"stop_reason": reason, "stop_sequence": stop_sequence},
                usage=_usage_of(outputs[0]),
            ),
            _event("message_stop"),
        ]

    def failure(self, error: Body) -> list[Event]:
        kind = "overloaded_error" if error.get("code") == "service_unavailable" else error.get("type")
        kind = kind if kind == "overloaded_error" else _ERROR_TYPES.get(str(kind), "api_error")
        return [_event("error", error={"type": kind, "message": error["message"]})]

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        sequence, blocks, parser = outputs[0].outputs[0], Blocks(), self._reading.parser(0)
        blocks.take([*parser.push(sequence.text), *parser.finish(sequence.finish_reason or "stop")])
        return self._message(blocks.whole(), *self._stopped(sequence, blocks), _usage_of(outputs[0]))

    def _parts(self, delta: Delta) -> list[Part]:
        parts = self._parser.push(delta.text)
        return parts if delta.finish_reason is None else [*parts, *self._parser.finish(delta.finish_reason)]

    def _message(self, content: list[Body], reason: str | None, stop_sequence: str | None, usage: Body) -> Body:
        return {
            "id": self._identity,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop_sequence,
            "usage": usage,
        }

    def _stopped(self, sequence: CompletionOutput, blocks: Blocks) -> tuple[str, str | None]:
        """Why it ended, and the stop sequence where one ended it."""
        if sequence.finish_reason == "stop" and blocks.has_calls:
            return "tool_use", None
        if sequence.finish_reason == "stop":
            found = sequence.stop_reason
            return ("stop_sequence", found) if isinstance(found, str) else ("end_turn", None)
        if sequence.finish_reason == "length":
            is_full = len(sequence.token_ids) < self._max_tokens
            return "model_context_window_exceeded" if is_full else "max_tokens", None
        # A deadline cut it off: as with Anthropic's long turns, the client may send it back to have it continued.
        return "pause_turn", None


def _event(kind: str, **fields: Any) -> Event:
    return _named({"type": kind, **fields})


def _named(data: Body) -> Event:
    return Event(data, name=data["type"])


def _usage_of(output: RequestOutput) -> Body:
    cached = output.metrics.cached_tokens
    return _usage(len(output.prompt_token_ids), cached, sum(len(each.token_ids) for each in output.outputs))


def _usage(prompt: int, cached: int, written: int) -> Body:
    """Anthropic counts what the cache held apart from what was read. Filling the cache costs nothing here."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
        "service_tier": "standard",
    }
