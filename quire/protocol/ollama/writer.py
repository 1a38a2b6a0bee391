"""Answers in Ollama's shapes: objects that each bring a piece, and a last one that says how it went."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from quire.core.message import AnswerMessage, ToolCall
from quire.core.outputs import CompletionOutput, Delta, RequestMetrics, RequestOutput
from quire.protocol.openai.logprobs import LogprobWriter
from quire.protocol.parsers.parts import add_parts
from quire.protocol.parsers.reading import Reading
from quire.protocol.writer import Body, Event, Writer

_NANOSECONDS = 1e9


class OllamaWriter(Writer):
    """One answer of /api/chat or /api/generate."""

    def __init__(
        self,
        kind: Literal["chat", "generate"],
        model: str,
        reading: Reading,
        logprobs: LogprobWriter,
        top: int,
        now: Callable[[], str] | None = None,
    ) -> None:
        """`model` is what the client calls it; `top` most likely tokens are listed where logprobs were asked for."""
        self._kind = kind
        self._model = model
        self._reading = reading
        self._logprobs = logprobs
        self._top = top
        self._now = now or timestamp
        self._parser = reading.parser(0)
        self._said = AnswerMessage()
        self._calls_sent = 0

    def opening(self) -> list[Event]:
        return []

    def piece(self, delta: Delta) -> list[Event]:
        before = AnswerMessage(self._said.reasoning, self._said.content)
        self._take(delta)
        is_last = delta.finish_reason is not None
        # a call is sent when it is whole: when another begins, or all is said
        calls = self._said.calls if is_last else self._said.calls[:-1]
        new = AnswerMessage(
            self._said.reasoning[len(before.reasoning) :],
            self._said.content[len(before.content) :],
            calls[self._calls_sent :],
        )
        self._calls_sent = max(self._calls_sent, len(calls))
        about = self._about(delta)
        if not (new.reasoning or new.content or new.calls or about):
            return []
        return [Event(self._head() | self._spoken(new) | {"done": False} | about)]

    def plain_text(self, delta: Delta) -> str:
        before = len(self._said.content)
        self._take(delta)
        return self._said.content[before:]

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        (output,) = outputs
        return [Event(self._head() | self._spoken(AnswerMessage()) | self._end(output))]

    def failure(self, error: Body) -> list[Event]:
        return [Event({"error": error["message"]})]

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        (output,) = outputs
        (sequence,) = output.outputs
        message = self._reading.message(0, sequence.text, sequence.finish_reason)
        return self._head() | self._spoken(message) | self._about(sequence) | self._end(output)

    def _take(self, delta: Delta) -> None:
        add_parts(self._said, self._parser.push(delta.text))
        if delta.finish_reason is not None:
            add_parts(self._said, self._parser.finish(delta.finish_reason))

    def _head(self) -> Body:
        return {"model": self._model, "created_at": self._now()}

    def _spoken(self, message: AnswerMessage) -> Body:
        thinking = {"thinking": message.reasoning} if message.reasoning else {}
        if self._kind == "generate":
            return {"response": message.content, **thinking}
        calls = [_call(number, call) for number, call in enumerate(message.calls, start=self._calls_before(message))]
        said = {"role": "assistant", "content": message.content, **thinking}
        return {"message": said | ({"tool_calls": calls} if calls else {})}

    def _calls_before(self, message: AnswerMessage) -> int:
        return max(self._calls_sent - len(message.calls), 0)

    def _about(self, said: CompletionOutput | Delta) -> Body:
        if not said.logprobs:
            return {}
        found = self._logprobs.chat(said.token_ids, said.logprobs, self._top)["content"]
        return {"logprobs": found}

    def _end(self, output: RequestOutput) -> Body:
        (sequence,) = output.outputs
        end: Body = {"done": True, "done_reason": sequence.finish_reason}
        if self._kind == "generate":
            end["context"] = [*output.prompt_token_ids, *sequence.token_ids]
        counts = {"prompt_eval_count": len(output.prompt_token_ids), "eval_count": len(sequence.token_ids)}
        return end | durations(output.metrics) | counts


def loaded(kind: Literal["chat", "generate"], model: str) -> Body:
    """The answer to a body that only asks for the model to be there, which it is."""
    said: Body = {"message": {"role": "assistant", "content": ""}} if kind == "chat" else {"response": ""}
    return {"model": model, "created_at": timestamp(), **said, "done": True, "done_reason": "load"}


def durations(metrics: RequestMetrics) -> dict[str, int]:
    """In nanoseconds; what went before the first step stands where Ollama tells how long a model took to load."""
    start = metrics.arrival_time
    scheduled = metrics.first_scheduled_time or start
    first = metrics.first_token_time or scheduled
    end = metrics.finished_time or first
    return {
        "total_duration": _nanoseconds(end - start),
        "load_duration": _nanoseconds(scheduled - start),
        "prompt_eval_duration": _nanoseconds(first - scheduled),
        "eval_duration": _nanoseconds(end - first),
    }


def timestamp(seconds: float | None = None) -> str:
    """A moment as Ollama writes it; now unless it is given."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat().replace("+00:00", "Z")


def _nanoseconds(seconds: float) -> int:
    return max(round(seconds * _NANOSECONDS), 1)  # clients divide by it


def _call(number: int, call: ToolCall) -> Body:
    try:
        arguments: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):  # the model did not finish it
        arguments = {}
    return {
        "id": call.identity,
        "function": {
            "index": number,
            "name": call.name,
            "arguments": arguments if isinstance(arguments, dict) else {},
        },
    }
