"""Peer: the other process of a link, for questions and orders in both directions. What they mean is for their names."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from quire.core.errors import InvalidRequest, Overloaded, QuireError, RequestFailed, Unavailable
from quire.server.errors import NotFound
from quire.serving.link import Link, LinkRefused

Handler = Callable[[msgspec.Raw], Awaitable[object]]
"""Takes what came with a question, encoded, and returns the answer."""
_KINDS: dict[str, type[QuireError]] = {
    kind.__name__: kind for kind in (InvalidRequest, NotFound, Overloaded, Unavailable)
}
"""Errors that pass from process to process; what else is raised is a failure there."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _Problem(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    message: str
    details: dict[str, float | str | None] = {}


class _Ask(msgspec.Struct, frozen=True, array_like=True, tag=True):
    ticket: int
    """0: nobody waits for an answer."""
    what: str
    given: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    ticket: int
    problem: _Problem | None
    result: msgspec.Raw
    """Also of None: it is encoded."""


_NOTHING = msgspec.Raw(msgspec.msgpack.encode(None))
_DECODER: msgspec.msgpack.Decoder[_Ask | _Answer] = msgspec.msgpack.Decoder(_Ask | _Answer)


class Peer:
    """Answers questions by name; handlers run beside each other."""

    def __init__(self, link: Link) -> None:
        self.handlers: dict[str, Handler] = {}
        """What may be asked here, by its name."""
        self._link = link
        self._is_closed = False
        self._tickets = 0
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._at_work: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the other side is gone; what is still asked of it then fails with Unavailable."""
        try:
            while True:
                message = _DECODER.decode(await self._link.receive())
                if isinstance(message, _Ask):
                    task = asyncio.create_task(self._answer(message))
                    self._at_work.add(task)
                    task.add_done_callback(self._at_work.discard)
                else:
                    self._settle(message)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (LinkRefused, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.error("a process of this server said what cannot be read: %s", error)
        finally:
            self.close()

    def tell(self, what: str, given: object = None) -> None:
        """Never waits, and nobody answers."""
        self._send(_Ask(0, what, _encoded(given)))

    async def ask(self, what: str, kind: type[_T], given: object = None) -> _T:
        """Wait for the answer; raises what was raised there, Unavailable where the other side is gone."""
        self._tickets += 1
        ticket = self._tickets
        if self._is_closed:
            raise _gone()
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        try:
            self._send(_Ask(ticket, what, _encoded(given)))
            return msgspec.msgpack.decode(await future, type=kind)
        finally:
            self._waiting.pop(ticket, None)

    def close(self) -> None:
        self._is_closed = True
        self._link.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(_gone())

    async def _answer(self, ask: _Ask) -> None:
        try:
            answer = _Answer(ask.ticket, None, _encoded(await self.handlers[ask.what](ask.given)))
        except QuireError as error:
            answer = _Answer(ask.ticket, _problem_of(error), _NOTHING)
        except Exception:
            _log.exception("%s failed", ask.what)
            failed = _Problem("RequestFailed", "the server failed; its log says more.")
            answer = _Answer(ask.ticket, failed, _NOTHING)
        if ask.ticket:
            self._send(answer)

    def _settle(self, answer: _Answer) -> None:
        future = self._waiting.get(answer.ticket)
        if future is None or future.done():
            return
        if answer.problem is not None:
            future.set_exception(_error_of(answer.problem))
        else:
            future.set_result(answer.result)

    def _send(self, message: _Ask | _Answer) -> None:
        self._link.send(msgspec.msgpack.encode(message))


def _gone() -> Unavailable:
    return Unavailable("another process of the server is being replaced; try again")


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def _problem_of(error: QuireError) -> _Problem:
    kind = next((each for each in type(error).__mro__ if each.__name__ in _KINDS), None)
    if kind is None:
        return _Problem("RequestFailed", str(error))
    return _Problem(kind.__name__, str(error), dict(vars(error)))


def _error_of(problem: _Problem) -> QuireError:
    kind = _KINDS.get(problem.kind)
    return RequestFailed(problem.message) if kind is None else kind(problem.message, **problem.details)
