"""Responses that are made in the background: whether or not anyone waits, until they end or are cancelled.

They live in the server that began them. What it has of one is told from here while it runs; the store has it from its
beginning, so that one whose server was stopped is known to have failed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from quire.core.errors import InvalidRequest, QuireError
from quire.protocol.responses.writer import ResponseWriter
from quire.protocol.writer import Body, Event
from quire.server.caller import Caller
from quire.server.drain import Drain
from quire.server.errors import error_object
from quire.server.streams import KEEP_ALIVE_SECONDS, STILL_HERE, encode_events
from quire.serving.running import Running

UNFINISHED = ("queued", "in_progress")


class BackgroundRun:
    """One response while it is made, and the events of it that clients follow."""

    def __init__(
        self,
        generation: Running,
        writer: ResponseWriter,
        caller: Caller,
        *,
        is_streamed: bool,
        over: Callable[[], object],
    ) -> None:
        """`over` is called when it has ended, however it did."""
        self.response: Body = writer.told("queued")
        """As it is now."""
        self.is_streamed = is_streamed
        self._generation = generation
        self._writer = writer
        self._caller = caller
        self._events: list[Event] = []
        self._news = asyncio.Event()
        self._is_over = False
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: over())

    async def cancel(self) -> None:
        """End it now; it is stored as far as it came."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """The events behind the one numbered `after`, as they come, encoded."""
        place = after + 1
        while True:
            news = self._news
            if place < len(self._events):
                fresh = self._events[place:]
                place += len(fresh)
                yield encode_events(fresh)
            elif self._is_over:
                return
            else:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await news.wait()
                except TimeoutError:
                    yield STILL_HERE

    async def _run(self) -> None:
        try:
            self._say(self._writer.opening())
            async for deltas in self._generation.deltas():
                self.response["status"] = "in_progress"
                self._say([event for delta in deltas for event in self._writer.piece(delta)])
            self._say(self._writer.closing(self._generation.outputs()))
        except asyncio.CancelledError:
            self._say(self._writer.cancelled())
        except QuireError as error:
            self._say(self._writer.failure(error_object(error, self._caller.request_id)))
        finally:
            self._generation.cancel()
            self._is_over = True
            self._tell()

    def _say(self, events: list[Event]) -> None:
        if self.is_streamed:
            self._events += events
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class BackgroundRuns:
    """All that one server has running. Lives on the event loop."""

    def __init__(self, *, alone: bool) -> None:
        """`alone`: no other front answers for this port, and so none is asked for what runs here."""
        self._alone = alone
        self._runs: dict[tuple[str, str], BackgroundRun] = {}

    def check(self) -> None:
        """Raise an InvalidRequest where responses cannot be made in the background."""
        if not self._alone:
            raise InvalidRequest(
                "background is true, and several fronts share this port, of which only the one that began a response "
                "knows of it; leave it out, or start the server with --api-server-count 1",
                field="background",
            )

    def get(self, tenant: str, identity: str) -> BackgroundRun | None:
        return self._runs.get((tenant, identity))

    def begin(
        self, generation: Running, writer: ResponseWriter, caller: Caller, drain: Drain, *, is_streamed: bool
    ) -> BackgroundRun:
        """Make a response on the event loop: its caller's work, which a server on its way out waits for."""
        key = (caller.tenant, writer.identity)
        with ExitStack() as entering:
            entering.enter_context(drain.work())
            entering.enter_context(caller.account.extended())
            entered = entering.pop_all()

        def over() -> None:
            del self._runs[key]
            entered.close()

        run = BackgroundRun(generation, writer, caller, is_streamed=is_streamed, over=over)
        self._runs[key] = run
        return run
