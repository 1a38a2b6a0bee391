"""OpenAIWriter: chats and completions, whole or as OpenAI streams them; their shapes are `quire.protocol.openai`'s."""

from collections.abc import Sequence

from quire.core.outputs import Delta, RequestOutput
from quire.protocol.openai.answers import ChatAnswer, CompletionAnswer, schema_errors, tokens_used
from quire.protocol.openai.options import AnswerOptions
from quire.protocol.writer import Body, Event, Writer

DONE = "[DONE]"
"""How OpenAI ends every stream."""


class OpenAIWriter(Writer):
    """One answer of /v1/chat/completions or /v1/completions; choice `prompt * n + index` is a sequence's."""

    def __init__(
        self, answer: ChatAnswer | CompletionAnswer, options: AnswerOptions, prompts: Sequence[list[int]], n: int
    ) -> None:
        self._answer = answer
        self._options = options
        self._prompts = prompts
        self._n = n
        self._read = sum(map(len, prompts))
        self._written = 0

    @property
    def is_plain(self) -> bool:
        return not self._options.echo

    def opening(self) -> list[Event]:
        chunks = [
            self._answer.first(place * self._n + index, place, prompt)
            for place, prompt in enumerate(self._prompts)
            for index in range(self._n)
        ]
        return [self._event(chunk) for chunk in chunks if chunk is not None]

    def piece(self, delta: Delta) -> list[Event]:
        index, options = delta.prompt * self._n + delta.index, self._options
        chunks: list[Body] = []
        if not options.prompt_only:
            self._written += len(delta.token_ids)
            chunks = self._answer.pieces(index, delta)
        if delta.finish_reason is not None:
            chunks = self._answer.ended(index, delta, chunks)
        return [self._event(chunk) for chunk in chunks]

    def plain_text(self, delta: Delta) -> str:
        return self._answer.plain_text(delta)

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        errors = schema_errors(outputs, self._n)
        last: list[Event] = []
        if self._options.include_usage:
            last = [Event(self._answer.chunk() | {"usage": self._answer.usage(outputs)} | errors)]
        elif errors:
            last = [Event(self._answer.chunk() | errors)]
        return [*last, Event(DONE)]

    def failure(self, error: Body) -> list[Event]:
        return [Event({"error": error}), Event(DONE)]

    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        return self._answer.whole(outputs) | schema_errors(outputs, self._n)

    def _event(self, chunk: Body) -> Event:
        if self._options.continuous_usage:
            return Event(chunk | {"usage": tokens_used(self._read, self._written, None)})
        return Event(chunk | {"usage": None} if self._options.include_usage else chunk)
