"""EngineServer: offers an engine of this host to fronts, over TCP or a unix socket. `quire engine` runs one.

The engine itself is a process that a supervisor here keeps alive. Fronts come and go: each hears of its own requests
only, and when its connection ends, so do they.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from quire.core.errors import ConfigError
from quire.core.status import Status
from quire.observe.metrics import Metrics
from quire.serving.client import EngineClient, OnMessage
from quire.serving.engine_link import EngineAddress, accept
from quire.serving.link import Link, LinkRefused
from quire.serving.messages import (
    Adapters,
    AskAdapters,
    AskBlocks,
    AskCheck,
    AskExperts,
    Blocks,
    Checked,
    Close,
    End,
    Experts,
    FromEngine,
    Hold,
    Lost,
    Profile,
    Profiled,
    Refused,
    Report,
    Resume,
    Sleep,
    Slept,
    Started,
    StartFailed,
    Submit,
    ToEngine,
    WakeUp,
    decode_to_engine,
    encode,
)
from quire.serving.supervisor import Slot, Supervisor

_TELL_EVERY = 1.0
"""Seconds between signs of life to fronts while the engine starts."""
_MOST_UNSENT = 64 << 20
"""Bytes that may wait for a front that does not read; it is cut off then, and goes on elsewhere."""
_ANSWERS: dict[type, type] = {
    AskBlocks: Blocks,
    AskExperts: Experts,
    AskAdapters: Adapters,
    AskCheck: Checked,
    Profile: Profiled,
    Sleep: Slept,
    WakeUp: Slept,
}
_log = logging.getLogger(__name__)


class _Front:
    """One connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.requests: dict[str, int] = {}
        """Its live requests, and how many sequences of each have not ended."""

    def tell(self, message: FromEngine) -> None:
        self.link.send(encode(message))
        if self.link.unsent_bytes > _MOST_UNSENT:
            _log.error("a front does not read; its connection is closed")
            self.link.close()


class EngineServer:
    """One engine, its supervisor and the fronts that use it."""

    def __init__(
        self,
        make_client: Callable[[OnMessage], EngineClient],
        address: EngineAddress,
        secret: bytes,
        *,
        metrics: Metrics,
        step_timeout: float,
        number: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`number` is the engine's place among those of this host."""
        self.address = address
        self._secret = secret
        self._tls = tls
        self._metrics = metrics
        self._number = number
        self._fronts: list[_Front] = []
        self._live: set[str] = set()
        """Ids of all fronts' requests."""
        self._asked: dict[type, deque[_Front]] = {answer: deque() for answer in set(_ANSWERS.values())}
        self._first: asyncio.Future[Started] | None = None
        self._server: asyncio.Server | None = None
        self._beat: asyncio.Task[None] | None = None
        self.supervisor: Supervisor[EngineClient] = Supervisor(
            lambda _: make_client(self._take),
            1,
            step_timeout=step_timeout,
            outage_timeout=step_timeout,
            on_lost=self._lost,
        )

    @property
    def num_live(self) -> int:
        """Requests of all fronts that have not ended."""
        return len(self._live)

    @property
    def num_fronts(self) -> int:
        """Fronts that are connected, and may send it more."""
        return len(self._fronts)

    async def start(self) -> None:
        """Listen and start the engine."""
        self._first = asyncio.get_running_loop().create_future()
        if self.address.scheme == "unix":
            self._server = await asyncio.start_unix_server(self._serve_front, self.address.path)
        else:
            self._server = await asyncio.start_server(
                self._serve_front, self.address.host, self.address.port, ssl=self._tls
            )
            port = self._server.sockets[0].getsockname()[1]
            self.address = EngineAddress(self.address.scheme, self.address.host, port)
        await self.supervisor.start()
        self._beat = asyncio.create_task(self._show_life())

    async def ready(self) -> Started:
        """Wait for the engine; raises ConfigError where its settings cannot start it."""
        assert self._first is not None, "start() comes first"
        return await asyncio.shield(self._first)

    async def close(self) -> None:
        """Allowed in every state: also where it could not listen."""
        if self._beat is not None:
            self._beat.cancel()
        if self._server is not None:
            self._server.close()
        for front in self._fronts:
            front.tell(Lost("the engine was shut down"))
            front.link.close()
        await self.supervisor.close()

    @property
    def _client(self) -> EngineClient:
        return self.supervisor.slots[0].client

    # -- fronts ------------------------------------------------------------------------------------------------

    async def _serve_front(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            link = await accept(reader, writer, self._secret)
        except (LinkRefused, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            if _only_looked(error):
                _log.debug("a connection was opened and closed, as probes do")
            else:
                _log.warning("a connection was refused: %s", str(error) or "it did not prove itself in time")
            writer.close()
            return
        front = _Front(link)
        self._fronts.append(front)
        _log.info("a front is connected; there are %d", len(self._fronts))
        if self._client.started is not None:
            front.tell(self._client.started)
        try:
            while True:
                self._hear(front, decode_to_engine(await link.receive()))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (LinkRefused, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.error("a front is cut off: what it sent cannot be read (%s)", error)
        finally:
            self._forget(front)

    def _hear(self, front: _Front, message: ToEngine) -> None:
        if isinstance(message, Submit):
            identity = message.request.id
            if identity in self._live:
                front.tell(_refusal(self._client, identity))
                return
            front.requests[identity] = len(message.request.resume) or message.request.params.num_sequences
            self._live.add(identity)
        elif isinstance(message, End | Hold | Resume):
            if message.request_id not in front.requests:
                return
        elif isinstance(message, Close):
            return  # the engine is not this front's alone
        elif type(message) in _ANSWERS:
            self._asked[_ANSWERS[type(message)]].append(front)
        self._client.send(message)

    def _forget(self, front: _Front) -> None:
        front.link.close()
        if front in self._fronts:
            self._fronts.remove(front)
        for identity in front.requests:
            self._live.discard(identity)
            self._client.send(End(identity, None, Status.ABORTED))
        _log.info("a front is gone; %d requests end and %d fronts are left", len(front.requests), len(self._fronts))

    # -- the engine --------------------------------------------------------------------------------------------

    def _take(self, client: EngineClient, message: FromEngine) -> None:
        if isinstance(message, Report):
            self._metrics.engine(self._number, message.stats)
            for front in self._fronts:
                front.tell(self._part_of(front, message))
        elif type(message) in self._asked:
            waiting = self._asked[type(message)]
            if waiting:
                waiting.popleft().tell(message)
        else:
            if isinstance(message, Started):
                self.supervisor.became_ready(client)
            self._settle(message)
            for front in self._fronts:
                front.tell(message)

    def _settle(self, message: FromEngine) -> None:
        """The first word of how the start went is for whoever waits in `ready`."""
        if self._first is None or self._first.done():
            return
        if isinstance(message, Started):
            self._first.set_result(message)
        elif isinstance(message, StartFailed):
            self._first.set_exception(ConfigError(message.message))

    def _part_of(self, front: _Front, report: Report) -> Report:
        """What concerns one front; the figures are for all."""
        mine = front.requests
        part = Report(
            report.stats,
            [news for news in report.sequences if news.request_id in mine],
            [each for each in report.accepted if each in mine],
            [each for each in report.refused if each.request_id in mine],
            [each for each in report.prompts if each.request_id in mine],
        )
        for refused in part.refused:
            self._ended(front, refused.request_id, front.requests[refused.request_id])
        for news in part.sequences:
            if news.status is not None:
                self._ended(front, news.request_id)
        return part

    def _ended(self, front: _Front, identity: str, sequences: int = 1) -> None:
        front.requests[identity] -= sequences
        if front.requests[identity] <= 0:
            del front.requests[identity]
            self._live.discard(identity)

    def _lost(self, slot: Slot[EngineClient], cause: str) -> None:
        """Fronts are told and disconnected: each moves its requests, and connects again."""
        if not self.supervisor.tells_who_started(slot):
            _log.error("engine %d is lost (%s)", self._number, cause)
        self._metrics.engine_lost(self._number, cause.partition(":")[0], given_up=slot.is_given_up)
        for waiting in self._asked.values():
            waiting.clear()
        self._live.clear()
        for front in self._fronts:
            front.requests.clear()
            front.tell(Lost(cause))
            front.link.close()

    async def _show_life(self) -> None:
        while True:
            await asyncio.sleep(_TELL_EVERY)
            if not self._client.is_ready:
                for front in self._fronts:
                    with suppress(OSError):
                        front.tell(Report(self._client.stats))


def _refusal(client: EngineClient, identity: str) -> Report:
    why = f"a request with the id {identity!r} is running already; give each its own"
    return Report(client.stats, refused=[Refused(identity, why, "request_id", False)])


def _only_looked(error: Exception) -> bool:
    """Whether a connection ended without a word. Kubernetes probes a port so every few seconds."""
    gone = isinstance(error, asyncio.IncompleteReadError) and not error.partial
    return gone or isinstance(error, ConnectionResetError)
