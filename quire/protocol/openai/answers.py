"""Finished requests as OpenAI's response bodies, and the parts that whole and streamed answers have in common."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from quire.core.outputs import CompletionOutput, Delta, RequestOutput
from quire.core.version import QUIRE_VERSION
from quire.protocol.openai.chat_format import chat_deltas, chat_message
from quire.protocol.openai.logprobs import LogprobWriter, prompt_logprobs
from quire.protocol.openai.options import AnswerOptions
from quire.protocol.parsers.answer import AnswerParser
from quire.protocol.parsers.free_text import TextCalls
from quire.protocol.parsers.parts import Part
from quire.protocol.parsers.reading import Reading

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What every body of one answer begins with."""

    identity: str
    created: int
    """Seconds since 1970."""
    model: str
    fingerprint: str
    """The same for answers of the same model by the same program."""


class ChatAnswer:
    """The shapes of /v1/chat/completions."""

    def __init__(
        self,
        head: AnswerHead,
        options: AnswerOptions,
        logprobs: LogprobWriter,
        top: int | None,
        reading: Reading,
        echoed: str = "",
    ) -> None:
        """`top` most likely tokens are listed where logprobs were asked for, None: all that were found; `reading` tells
        calls from content; `echoed` stands before it."""
        self._head = head
        self._options = options
        self._logprobs = logprobs
        self._top = top
        self._reading = reading
        self._echoed = echoed
        self._parsers: dict[int, AnswerParser] = {}
        self._texts: dict[int, TextCalls] = {}
        self._has_calls: set[int] = set()
        """Choices of a stream that have called a tool."""

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        """A chat has one prompt, and so one output."""
        (output,) = outputs
        choices = [self._choice(index, sequence) for index, sequence in enumerate(output.outputs)]
        used = usage(outputs, reading=self._reading)
        body = envelope(self._head, self._options, "chat.completion", choices) | {"usage": used}
        return body | of_prompt(output, self._options)

    def chunk(self, *choices: Body) -> Body:
        return envelope(self._head, self._options, "chat.completion.chunk", list(choices))

    def usage(self, outputs: Sequence[RequestOutput]) -> Body:
        return usage(outputs, reading=self._reading)

    def first(self, index: int, _place: int, prompt: list[int]) -> Body | None:
        """The chunk that begins a message."""
        message = {"role": "assistant", "content": self._echoed, "refusal": None}
        chunk = self.chunk(_open(index, {"delta": message, "logprobs": None}))
        return chunk | {"prompt_token_ids": prompt} if self._options.token_ids else chunk

    def pieces(self, index: int, delta: Delta) -> list[Body]:
        """The chunks for what was said: one, or several where it is of several kinds."""
        texts = self._texts.setdefault(index, TextCalls(self._reading.tools))
        parts = texts.take(self.parts(index, delta))
        if delta.finish_reason is not None:
            parts += texts.end()
        said = chat_deltas(parts, self._reading.tools, legacy=self._options.legacy_calls)
        about = self._about(delta)
        if not said and not (delta.logprobs or (self._options.token_ids and delta.token_ids)):
            return []
        first, *others = said or [{"content": ""}]
        nothing = {"logprobs": None}
        return [self.chunk(_open(index, {"delta": first, **about}))] + [
            self.chunk(_open(index, {"delta": other, **nothing})) for other in others
        ]

    def plain_text(self, delta: Delta) -> str:
        """What a delta adds to the content."""
        return "".join(part.text for part in self.parts(delta.index, delta) if part.kind == "content")

    def ended(self, index: int, delta: Delta, chunks: list[Body]) -> list[Body]:
        """The last chunks of a message: the end stands in one of its own, as in OpenAI's streams."""
        end = _end(delta, called=self._called if index in self._has_calls else None)
        return [*chunks, self.chunk({"index": index, "delta": {}, "logprobs": None, **end})]

    def parts(self, index: int, delta: Delta) -> list[Part]:
        """What a delta adds to its message."""
        parser = self._parsers.get(index)
        if parser is None:
            parser = self._parsers[index] = self._reading.parser(index)
        parts = parser.push(delta.text)
        if delta.finish_reason is not None:
            parts += parser.finish(delta.finish_reason)
        if any(part.kind == "call" for part in parts):
            self._has_calls.add(index)
        return parts

    def _choice(self, index: int, sequence: CompletionOutput) -> Body:
        message = self._reading.message(index, sequence.text, sequence.finish_reason)
        message.content = self._echoed + message.content
        return {
            "index": index,
            "message": chat_message(message, self._reading.tools, legacy=self._options.legacy_calls),
            "token_ids": None,
            **self._about(sequence),
            **_end(sequence, called=self._called if message.calls else None),
        }

    @property
    def _called(self) -> str:
        return "function_call" if self._options.legacy_calls else "tool_calls"

    def _about(self, said: CompletionOutput | Delta) -> Body:
        found = None if said.logprobs is None else self._logprobs.chat(said.token_ids, said.logprobs, self._top)
        return {"logprobs": found} | ({"token_ids": said.token_ids} if self._options.token_ids else {})


class CompletionAnswer:
    """The shapes of /v1/completions."""

    def __init__(
        self, head: AnswerHead, options: AnswerOptions, logprobs: LogprobWriter, echoed: Sequence[str] = ()
    ) -> None:
        """`echoed` are the prompts as text, where they stand before the answers."""
        self._head = head
        self._options = options
        self._logprobs = logprobs
        self._echoed = echoed
        self._offsets: dict[int, int] = {}
        """Where the next token's text begins, for each choice of a stream."""

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        """Choices of the first prompt come first."""
        sequences = [(place, output, sequence) for place, output in enumerate(outputs) for sequence in output.outputs]
        choices = [self._choice(index, *each) for index, each in enumerate(sequences)]
        used = usage(outputs, answered=not self._options.prompt_only, details=False)
        return envelope(self._head, self._options, "text_completion", choices) | {"usage": used}

    def chunk(self, *choices: Body) -> Body:
        return envelope(self._head, self._options, "text_completion", list(choices))

    def first(self, index: int, place: int, prompt: list[int]) -> Body | None:
        """The chunk that begins an answer with what is wanted of its prompt; None where that is nothing."""
        if not self._options.echo and not self._options.token_ids:
            return None
        text = self._echoed[place] if self._options.echo else ""
        self._offsets[index] = len(text)
        ids = {"prompt_token_ids": prompt, "token_ids": []} if self._options.token_ids else {}
        return self.chunk(_open(index, {"text": text, "logprobs": None, **ids}))

    def usage(self, outputs: Sequence[RequestOutput]) -> Body:
        return usage(outputs, answered=not self._options.prompt_only)

    def pieces(self, index: int, delta: Delta) -> list[Body]:
        """The chunk for what was said. A token may add nothing yet: a part of a character, or of a stop string."""
        if not (delta.text or delta.logprobs or (self._options.token_ids and delta.token_ids)):
            return []
        found, start = None, self._offsets.get(index, 0)
        if delta.logprobs is not None:
            found = self._logprobs.text(delta.token_ids, delta.logprobs, start)
            self._offsets[index] = start + self._logprobs.length(delta.token_ids)
        return [self.chunk(_open(index, {"text": delta.text, "logprobs": found, **self._ids(delta.token_ids)}))]

    def plain_text(self, delta: Delta) -> str:
        return delta.text

    def ended(self, index: int, delta: Delta, chunks: list[Body]) -> list[Body]:
        """The last chunks of an answer: the end stands beside the last text, as in vLLM, where there is any."""
        end = self._end(delta)
        if not chunks:
            return [self.chunk({"index": index, "text": "", "logprobs": None, **end})]
        *before, last = chunks
        return [*before, last | {"choices": [last["choices"][0] | end]}]

    def _choice(self, index: int, place: int, output: RequestOutput, sequence: CompletionOutput) -> Body:
        only_prompt = self._options.prompt_only
        before = self._echoed[place] if self._options.echo else ""
        choice: Body = {
            "index": index,
            "text": before if only_prompt else before + sequence.text,
            "logprobs": self._text_logprobs(output, sequence),
            **self._end(sequence),
            "token_ids": None,
            **self._ids([] if only_prompt else sequence.token_ids),
        }
        return choice | of_prompt(output, self._options)

    def _text_logprobs(self, output: RequestOutput, sequence: CompletionOutput) -> Body | None:
        if sequence.logprobs is None:
            return None
        answer = ([], []) if self._options.prompt_only else (sequence.token_ids, sequence.logprobs)
        if not self._options.echo:
            return self._logprobs.text(*answer)
        before = output.prompt_logprobs or [None] * len(output.prompt_token_ids)
        prompt = self._logprobs.text(output.prompt_token_ids, before, skip_special=False)
        start = self._logprobs.length(output.prompt_token_ids, skip_special=False)
        return {name: prompt[name] + said for name, said in self._logprobs.text(*answer, start).items()}

    def _end(self, said: CompletionOutput | Delta) -> Body:
        # no token was asked for, and none was too many
        return {"finish_reason": "length", "stop_reason": None} if self._options.prompt_only else _end(said)

    def _ids(self, tokens: list[int]) -> Body:
        return {"token_ids": tokens} if self._options.token_ids else {}


@lru_cache(maxsize=16)
def fingerprint(model: str) -> str:
    """OpenAI's `system_fingerprint`: another version of quire, or another model, has another."""
    return "fp_" + hashlib.sha256(f"{QUIRE_VERSION} {model}".encode()).hexdigest()[:12]


def envelope(head: AnswerHead, options: AnswerOptions, kind: str, choices: list[Body]) -> Body:
    prefix = "cmpl" if kind == "text_completion" else "chatcmpl"
    body: Body = {
        "id": f"{prefix}-{options.request_id or head.identity}",
        "object": kind,
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "system_fingerprint": head.fingerprint,
    }
    return body if options.service_tier is None else body | {"service_tier": options.service_tier}


def of_prompt(output: RequestOutput, options: AnswerOptions) -> Body:
    """What vLLM's answers say of a prompt; null where it was not asked for."""
    asked = output.prompt_logprobs if options.prompt_logprobs else None
    return {
        "prompt_token_ids": output.prompt_token_ids if options.token_ids else None,
        "prompt_logprobs": None if asked is None else prompt_logprobs(asked),
    }


def schema_errors(outputs: Sequence[RequestOutput], n: int) -> Body:
    """A field for choices whose texts fall short of their schema; nothing where there are none."""
    found = [
        {"index": place * n + index, "message": sequence.schema_error}
        for place, output in enumerate(outputs)
        for index, sequence in enumerate(output.outputs)
        if sequence.schema_error is not None
    ]
    return {"schema_errors": found} if found else {}


def usage(
    outputs: Sequence[RequestOutput], *, answered: bool = True, reading: Reading | None = None, details: bool = True
) -> Body:
    """Tokens of all prompts and answers; `answered` false leaves out what was generated, `details` false what of them
    was cached or thought."""
    read = sum(len(output.prompt_token_ids) for output in outputs)
    sequences = [sequence.token_ids for output in outputs for sequence in output.outputs]
    written = sum(map(len, sequences)) if answered else 0
    thinking = 0 if reading is None else sum(map(reading.thinking_tokens, sequences))
    cached = sum(output.metrics.cached_tokens for output in outputs)
    return tokens_used(read, written, cached if details else None, thinking)


def tokens_used(read: int, written: int, cached: int | None, thinking: int = 0) -> Body:
    """A `usage` object; `cached` is None while it is not known, or where details are not wanted."""
    counts: Body = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
        counts["completion_tokens_details"] = {"reasoning_tokens": thinking}
    return counts


def error_answer(message: str, kind: str, field: str | None) -> Body:
    """The body of a refusal."""
    return {"error": {"message": message, "type": kind, "param": field, "code": None}}


def _open(index: int, said: Body) -> Body:
    return {"index": index, **said, "finish_reason": None}


def _end(said: CompletionOutput | Delta, *, called: str | None = None) -> Body:
    """`called` is the word for an answer that ended with a call."""
    reason = called if called is not None and said.finish_reason == "stop" else said.finish_reason
    return {"finish_reason": reason, "stop_reason": said.stop_reason}
