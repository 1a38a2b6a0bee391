"""Answers in the shapes of OpenAI's Responses API: a response, or the numbered events that build it up."""

from collections.abc import Callable, Sequence
from typing import Any

from quire.core.outputs import CompletionOutput, Delta, Logprob, PositionLogprobs, RequestOutput
from quire.engine.text.tokenizer import Tokenizer
from quire.server.responses.items import output_item, output_part
from quire.server.store.limits import new_id
from quire.server.writer import Body, Event, Writer

_ERROR_CODES = {"invalid_request_error": "invalid_prompt", "rate_limit_error": "rate_limit_exceeded"}
_FAILED = ("error", "queue_timeout")


class ResponseWriter(Writer):
    """One response with one message. `keep` is given the response when it has ended, however it did."""

    def __init__(
        self,
        identity: str,
        created: int,
        model: str,
        echo: Body,
        tokenizer: Tokenizer,
        *,
        top_logprobs: int | None,
        keep: Callable[[Body], None],
    ) -> None:
        """`echo` are the fields of the request that the response repeats."""
        self._identity = identity
        self._created = created
        self._model = model
        self._echo = echo
        self._tokenizer = tokenizer
        self._top = top_logprobs
        self._keep = keep
        self._item = new_id("msg_")
        self._number = 0
        self._untold: list[Body] = []
        """Logprobs of tokens whose text is still to come."""

    def opening(self) -> list[Event]:
        response = self._response("in_progress")
        item = output_item(self._item, "", "in_progress") | {"content": []}
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
            self._event("response.output_item.added", output_index=0, item=item),
            self._part_event("response.content_part.added", part=output_part("")),
        ]

    def piece(self, delta: Delta) -> list[Event]:
        self._untold += self._logprobs(delta.token_ids, delta.logprobs)
        if not delta.text:
            return []
        told, self._untold = self._untold, []
        return [self._part_event("response.output_text.delta", delta=delta.text, logprobs=told)]

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        response = self._finished(outputs[0])
        item = response["output"][0]
        part = item["content"][0]
        self._keep(response)
        return [
            self._part_event("response.output_text.done", text=part["text"], logprobs=part["logprobs"]),
            self._part_event("response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=0, item=item),
            self._event(f"response.{response['status']}", response=response),
        ]

    def failure(self, error: Body) -> list[Event]:
        code = _ERROR_CODES.get(error["type"], "server_error")
        response = self._response("failed", error={"code": code, "message": error["message"]})
        self._keep(response)
        return [self._event("response.failed", response=response)]

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        response = self._finished(outputs[0])
        self._keep(response)
        return response

    def _finished(self, output: RequestOutput) -> Body:
        sequence = output.outputs[0]
        ending = _ending(sequence)
        done = "completed" if ending["status"] == "completed" else "incomplete"
        logprobs = self._logprobs(sequence.token_ids, sequence.logprobs)
        item = output_item(self._item, sequence.text, done, logprobs)
        return self._response(**ending, output=[item], usage=_usage(output))

    def _response(self, status: str, **changed: Any) -> Body:
        fixed = {"background": False, "max_tool_calls": None, "reasoning": {"effort": None, "summary": None}}
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
            "tools": [],
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
            likeliest = sorted(position.items(), key=lambda pair: pair[1].rank or 0)
            # The chosen token is among them only when it is likely enough.
            top = [self._logprob(*pair) for pair in likeliest if 0 < (pair[1].rank or 0) <= self._top]
            told.append(self._logprob(token, position[token]) | {"top_logprobs": top[: self._top]})
        return told

    def _logprob(self, token: int, found: Logprob) -> Body:
        bytes_ = list(self._tokenizer.token_bytes(token))
        return {"token": found.decoded_token or "", "logprob": found.logprob, "bytes": bytes_}

    def _part_event(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=self._item, output_index=0, content_index=0, **fields)

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


def _usage(output: RequestOutput) -> Body:
    read, written = len(output.prompt_token_ids), sum(len(each.token_ids) for each in output.outputs)
    cached = output.metrics.cached_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
