"""Answers in the shapes of OpenAI's Responses API: a response, or the numbered events that build it up."""

from collections.abc import Callable, Sequence
from typing import Any

from quire.core.outputs import CompletionOutput, Delta, Logprob, PositionLogprobs, RequestOutput
from quire.protocol.openai.answers import schema_errors
from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.reading import Reading
from quire.protocol.responses.output import Output, Seal, Step
from quire.protocol.writer import Body, Event, Writer
from quire.text.tokenizer import Tokenizer

_ERROR_CODES = {"invalid_request_error": "invalid_prompt", "rate_limit_error": "rate_limit_exceeded"}
_FAILED = ("error", "queue_timeout")


class ResponseWriter(Writer):
    """One response. `keep` is given the response when it has ended, however it did."""

    def __init__(
        self,
        identity: str,
        created: int,
        model: str,
        echo: Body,
        tokenizer: Tokenizer,
        *,
        reading: Reading,
        top_logprobs: int | None,
        keep: Callable[[Body], None],
        seal: Seal | None = None,
        tokens_as_ids: bool = False,
    ) -> None:
        """`echo` are the fields of the request that the response repeats; `seal` is for its thinking, if any is;
        `tokens_as_ids` names tokens of logprobs as token_id:5."""
        self._identity = identity
        self._created = created
        self._model = model
        self._echo = echo
        self._tokenizer = tokenizer
        self._top = top_logprobs
        self.keep = keep
        self._reading = reading
        self._parser = reading.parser(0)
        self._seal = seal
        self._tokens_as_ids = tokens_as_ids
        self._output = self._new_output()
        self._number = 0
        self._untold: list[Body] = []
        """Logprobs of tokens whose text is still to come."""

    @property
    def identity(self) -> str:
        return self._identity

    def told(self, status: str) -> Body:
        """The response while there is nothing of it yet."""
        return self._response(status)

    def opening(self) -> list[Event]:
        response = self._response("in_progress")
        # where nothing but a message can come, it is there from the beginning
        begun = self._output.open_message() if self._reading.is_plain else []
        waited = []
        if self._echo.get("background"):
            queued = self._response("queued")
            waited = [self._event("response.created", response=queued), self._event("response.queued", response=queued)]
        return [
            *(waited or [self._event("response.created", response=response)]),
            self._event("response.in_progress", response=response),
            *self._events(begun),
        ]

    def piece(self, delta: Delta) -> list[Event]:
        self._untold += self._logprobs(delta.token_ids, delta.logprobs)
        parts, told = self._parts(delta), []
        if any(part.kind == "content" for part in parts):
            told, self._untold = self._untold, []
        return self._events(self._output.take(parts, told))

    def plain_text(self, delta: Delta) -> str:
        parts = self._parts(delta)
        self._output.take(parts)
        return "".join(part.text for part in parts if part.kind == "content")

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        ending = _ending(outputs[0].outputs[0])
        steps = self._output.close(_item_status(ending))
        response = self._finished(outputs[0], ending, self._output)
        self.keep(response)
        return [*self._events(steps), self._event(f"response.{response['status']}", response=response)]

    def failure(self, error: Body) -> list[Event]:
        code = _ERROR_CODES.get(error["type"], "server_error")
        response = self._response("failed", error={"code": code, "message": error["message"]})
        self.keep(response)
        return [self._event("response.failed", response=response)]

    def cancelled(self) -> list[Event]:
        """Its client does not want the rest of a response that runs in the background."""
        steps = self._output.close("incomplete") if self._output.items else []
        response = self._response("cancelled", output=self._output.items)
        self.keep(response)
        # OpenAI's streams have no event for it; clients end at this one
        return [*self._events(steps), self._event("response.incomplete", response=response)]

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        sequence, output, parser = outputs[0].outputs[0], self._new_output(), self._reading.parser(0)
        ending, logprobs = _ending(sequence), self._logprobs(sequence.token_ids, sequence.logprobs)
        output.take([*parser.push(sequence.text), *parser.finish(sequence.finish_reason or "stop")], logprobs)
        output.close(_item_status(ending))
        response = self._finished(outputs[0], ending, output)
        self.keep(response)
        return response

    def _new_output(self) -> Output:
        return Output(self._reading.tools, self._seal)

    def _parts(self, delta: Delta) -> list[Part]:
        parts = self._parser.push(delta.text)
        return parts if delta.finish_reason is None else [*parts, *self._parser.finish(delta.finish_reason)]

    def _finished(self, output: RequestOutput, ending: Body, said: Output) -> Body:
        response = self._response(**ending, output=said.items, usage=_usage(output, self._reading))
        return response | schema_errors([output], 1)

    def _response(self, status: str, **changed: Any) -> Body:
        fixed = {"max_tool_calls": None}
        return {
            "id": self._identity,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": [],
            "text": {"format": {"type": "text"}},
            "usage": None,
            **fixed,
            **self._echo,
            **changed,
        }

    def _logprobs(self, tokens: Sequence[int], found: Sequence[PositionLogprobs] | None) -> list[Body]:
        if found is None or self._top is None:
            return []
        told = []
        for token, position in zip(tokens, found, strict=True):
            most_likely = sorted(position.items(), key=lambda pair: pair[1].rank or 0)
            # The chosen token is among them only when it is likely enough.
            top = [self._logprob(*pair) for pair in most_likely if 0 < (pair[1].rank or 0) <= self._top]
            told.append(self._logprob(token, position[token]) | {"top_logprobs": top[: self._top]})
        return told

    def _logprob(self, token: int, found: Logprob) -> Body:
        bytes_ = list(self._tokenizer.token_bytes(token))
        name = f"token_id:{token}" if self._tokens_as_ids else found.decoded_token or ""
        return {"token": name, "logprob": found.logprob, "bytes": bytes_}

    def _events(self, steps: list[Step]) -> list[Event]:
        return [self._event(kind, **fields) for kind, fields in steps]

    def _event(self, kind: str, **fields: Any) -> Event:
        number, self._number = self._number, self._number + 1
        return Event({"type": kind, "sequence_number": number, **fields}, name=kind)


def _ending(sequence: CompletionOutput) -> Body:
    if sequence.finish_reason == "stop":
        return {"status": "completed"}
    if sequence.finish_reason in _FAILED:
        return {"status": "failed", "error": {"code": "server_error", "message": "the answer could not be completed"}}
    # OpenAI has no word for a deadline, so ours stands.
    reason = "max_output_tokens" if sequence.finish_reason == "length" else sequence.finish_reason
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def _item_status(ending: Body) -> str:
    return "completed" if ending["status"] == "completed" else "incomplete"


def _usage(output: RequestOutput, reading: Reading) -> Body:
    read, written = len(output.prompt_token_ids), sum(len(each.token_ids) for each in output.outputs)
    cached = output.metrics.cached_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {
            "reasoning_tokens": sum(reading.thinking_tokens(each.token_ids) for each in output.outputs)
        },
        "total_tokens": read + written,
    }
