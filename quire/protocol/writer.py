"""Writer: how one API writes the answer to one body, whole or in pieces. Knows shapes, and nothing of transports."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quire.core.outputs import Delta, RequestOutput

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One message of a stream: a `data:` line of server-sent events, or one frame of a socket."""

    data: Body | str
    name: str | None = None
    """The `event:` line, for APIs that name their events."""


class Writer(ABC):
    """One answer. Streams call `opening`, then `piece` for every delta, then `closing`, or `failure` at any point."""

    @property
    def is_plain(self) -> bool:
        """Whether the generated text alone is the whole answer, so that it may be streamed as such."""
        return True

    def plain_text(self, delta: Delta) -> str:
        """What a delta adds to the answer where nothing but its text is streamed."""
        return delta.text

    @abstractmethod
    def opening(self) -> list[Event]:
        """What is said before the first token; called once the engine has accepted the request."""

    @abstractmethod
    def piece(self, delta: Delta) -> list[Event]:
        """What a delta adds."""

    @abstractmethod
    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        """What is said when all is finished; `outputs` are complete, one for each prompt."""

    @abstractmethod
    def failure(self, error: Body) -> list[Event]:
        """What is said when the stream breaks off; `error` is the inside of OpenAI's error object."""

    @abstractmethod
    def whole(self, outputs: Sequence[RequestOutput]) -> Body:
        """The answer of a request that is not streamed."""


class WholeWriter(Writer):
    """An answer that is never streamed."""

    def opening(self) -> list[Event]:
        raise AssertionError("this answer is sent whole")

    def piece(self, delta: Delta) -> list[Event]:
        raise AssertionError("this answer is sent whole")

    def closing(self, outputs: Sequence[RequestOutput]) -> list[Event]:
        raise AssertionError("this answer is sent whole")

    def failure(self, error: Body) -> list[Event]:
        raise AssertionError("this answer is sent whole")
