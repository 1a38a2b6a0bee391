"""AnswerReader: an OpenAI stream as it arrives, into the moments of its pieces, its tokens and its error.

Knows bytes and moments, and no clock or socket.
"""

from typing import Any

import msgspec

from quire.bench.http.events import EventSplitter

DONE = b"[DONE]"
_LONGEST_ERROR = 300


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """What a server counted."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        return None if self.prompt_tokens_details is None else self.prompt_tokens_details.cached_tokens


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


class AnswerReader:
    """The answer to one request; an AnswerSink."""

    def __init__(self) -> None:
        self._events = EventSplitter()
        self._body: list[bytes] = []
        """Of an answer that is no stream, as far as one can tell yet."""
        self._has_events = False
        self._texts: list[str] = []
        self.status = 0
        self.pieces: list[int] = []
        """When each piece with something generated arrived, in the nanoseconds of whoever brings them."""
        self.ended = 0
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.is_done = False
        """Whether the server said that nothing comes any more."""
        self._error: Any = None

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def begin(self, status: int, arrived: int) -> None:
        self.status, self.ended = status, arrived

    def body(self, piece: bytes, arrived: int) -> None:
        self.ended = arrived
        if self.status != 200:
            self._body.append(piece)
            return
        events = self._events.feed(piece)
        self._has_events = self._has_events or bool(events)
        if not self._has_events:
            self._body.append(piece)
        for event in events:
            if event == DONE:
                self.is_done = True
            else:
                self._take(event, arrived)

    def problem(self) -> tuple[str, str] | None:
        """The kind of what went wrong, for counting, and its words; None where nothing did."""
        if self.status != 200:
            return f"http {self.status}", self._beginning()
        if not self._has_events and self._beginning().lstrip()[:1] in ("{", "[", "<"):
            return "no stream", f"a stream was asked for, and this came: {self._beginning()}"
        if self._error is not None:
            return "error in the stream", str(self._error)[:_LONGEST_ERROR]
        if not self.is_done and self.finish_reason is None:
            return "cut off", "the answer ended without a finish reason or [DONE]"
        if not self.pieces:
            return "empty", "the answer had no tokens"
        return None

    def _beginning(self) -> str:
        return b"".join(self._body).decode(errors="replace")[:_LONGEST_ERROR]

    def _take(self, event: bytes, arrived: int) -> None:
        try:
            chunk = _DECODER.decode(event)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._error = self._error or f"{error}: {event[:100]!r}"
            return
        self._error = self._error or chunk.error
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            # a last word may be a token without text, such as the end of a turn; it counts only where nothing else came
            if _has_token(choice) or (choice.finish_reason is not None and not self.pieces):
                self.pieces.append(arrived)
            self._texts.append(_text(choice))
            self.finish_reason = choice.finish_reason or self.finish_reason


def _has_token(choice: _Choice) -> bool:
    """Whether something was generated. It need not show: half a character has no text yet. A role alone is none."""
    delta = choice.delta
    if _text(choice) or (delta is not None and delta.tool_calls):
        return True
    if choice.finish_reason is not None:
        return False
    return choice.text is not None or (delta is not None and delta.role is None and delta.content is not None)


def _text(choice: _Choice) -> str:
    delta = choice.delta
    if delta is None:
        return choice.text or ""
    return (delta.reasoning_content or delta.reasoning or "") + (delta.content or "")
