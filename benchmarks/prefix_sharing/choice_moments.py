"""When each of a request's choices had its first token, and when the last came: what n answers in one stream need.

`quire bench` times streams, and here one stream holds several answers.
"""

from typing import Any

import msgspec

from quire.bench.http.events import EventSplitter

_DONE = b"[DONE]"


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


class ChoiceMoments:
    """Reads one completion's stream; an AnswerSink. Moments are nanoseconds of whoever brings them."""

    def __init__(self) -> None:
        self._events = EventSplitter()
        self._status = 0
        self._body = b""
        self._problem: Any = None
        self.firsts: dict[int, int] = {}
        """By the choice's index."""
        self.ended = 0
        self.tokens = 0
        """Of all choices, as `usage` counts them."""

    def begin(self, status: int, arrived: int) -> None:
        self._status = status

    def body(self, piece: bytes, arrived: int) -> None:
        if self._status != 200:
            self._body += piece
            return
        for event in self._events.feed(piece):
            if event != _DONE:
                self._take(_DECODER.decode(event), arrived)

    def check(self, choices: int, tokens: int) -> None:
        """Raise unless every choice was answered to its end."""
        if self._status != 200 or self._problem is not None:
            told = self._problem or self._body.decode(errors="replace")
            raise RuntimeError(f"the server answered {self._status}: {str(told)[:300]}")
        if len(self.firsts) != choices or self.tokens != choices * tokens:
            raise RuntimeError(
                f"{choices} answers of {tokens} tokens were asked for; there came {len(self.firsts)} answers of "
                f"{self.tokens} tokens together"
            )

    def _take(self, chunk: _Chunk, arrived: int) -> None:
        self._problem = self._problem or chunk.error
        if chunk.usage is not None:
            self.tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            self.firsts.setdefault(choice.index, arrived)
            self.ended = arrived
