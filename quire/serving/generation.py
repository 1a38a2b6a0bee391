"""Generation: the requests of one body on their way to one client, read as fast or as slowly as it likes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from quire.core.errors import QuireError, RequestFailed
from quire.core.outputs import Delta, RequestOutput
from quire.core.pooling import Rows
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.status import FINISH_REASONS, Status
from quire.observe.metrics import Metrics
from quire.protocol.journal import Progress
from quire.serving.dispatcher import Dispatcher
from quire.serving.journal import Entry
from quire.serving.reader import RequestReader
from quire.text.tokenizer import Tokenizer

_STATUSES = {reason: status for status, reason in FINISH_REASONS.items()}
MOST_UNREAD = 256
"""Tokens of a request that may wait for a streaming client before its sequences pause."""


class Generation:
    """A read returns everything new since the last one, so a slow reader gets fewer and larger pieces."""

    def __init__(
        self,
        requests: list[tuple[Request, str | None]],
        tokenizer: Tokenizer,
        dispatcher: Dispatcher,
        *,
        endpoint: str,
        slow_reader_timeout: float,
        metrics: Metrics,
        work: Callable[[int, SamplingParams], float],
        on_finished: Callable[[RequestReader, Entry], None],
        resumed: Sequence[Progress] | None = None,
    ) -> None:
        """`requests` come with the text of their prompts, where they came as text; `work` guesses what one costs.
        `resumed` is what another server had made of them; sequences that it does not name have no tokens yet.
        """
        self._dispatcher = dispatcher
        self._timeout = slow_reader_timeout
        self._metrics = metrics
        self._on_finished = on_finished
        self._news = asyncio.Event()
        self._reports: set[int] = set()
        """Places of requests whose end was reported."""
        self._drop_timer: asyncio.TimerHandle | None = None
        self.on_drop: Callable[[], None] | None = None
        """Cuts the connection of a client that does not read."""
        self.is_streaming = False
        self._readers = [
            RequestReader(
                request,
                text,
                place,
                tokenizer,
                on_change=partial(self._changed, place),
                on_tokens=partial(self._count_tokens, place),
                stop=partial(self._stop, place),
            )
            for place, (request, text) in enumerate(requests)
        ]
        self._entries = [
            Entry(request, reader, endpoint, work=work(len(request.prompt.tokens), request.params))
            for (request, _), reader in zip(requests, self._readers, strict=True)
        ]
        self._replayed: list[Delta] | None = None
        """What of a resumed generation its client already has, until it was read; None where nothing was resumed."""
        if resumed is not None:
            self._replay(resumed)

    def start(self) -> None:
        """Hand the requests to the engines."""
        try:
            for place, entry in enumerate(self._entries):
                if not entry.is_over:
                    self._dispatcher.submit(entry)
                else:  # all of it was made elsewhere
                    self._readers[place].accepted()
        except BaseException:
            self.cancel()
            raise

    async def accepted(self) -> None:
        """Wait until the engines have taken in every request; raises the error of one that they refused."""
        while not all(reader.is_accepted for reader in self._readers):
            await self._next()
        self._raise_error()

    async def deltas(self, idle: float | None = None) -> AsyncIterator[list[Delta]]:
        """Everything new, again and again until all is finished; raises if a request failed.

        After `idle` seconds without news it yields nothing, as a sign that it is still there. A resumed generation
        first yields what the client already has.
        """
        self.is_streaming = True
        if self._replayed is not None:
            replayed, self._replayed = self._replayed, None
            yield replayed
        while True:
            self._raise_error()
            deltas = [delta for reader in self._readers for delta in reader.take_deltas()]
            self._caught_up()
            if deltas:
                yield deltas
            elif self.is_finished:
                return
            elif not await self._next(idle):
                yield []

    async def wait(self) -> list[RequestOutput]:
        """Wait for the end of all; raises if a request failed."""
        while not self.is_finished:
            await self._next()
        self._raise_error()
        return self.outputs()

    def outputs(self) -> list[RequestOutput]:
        """All there is so far, in the order of the prompts."""
        return [reader.output() for reader in self._readers]

    def pooled(self) -> list[Rows]:
        """What was read off the prompts, in their order."""
        return [reader.pooled for reader in self._readers]

    def cancel(self) -> None:
        """The client does not want the rest. Nothing happens if all is finished."""
        self._stop_timer()
        for reader, entry in zip(self._readers, self._entries, strict=True):
            if not entry.is_over:
                self._dispatcher.end(entry, status=Status.ABORTED)
                reader.aborted()

    @property
    def is_finished(self) -> bool:
        return all(reader.is_finished for reader in self._readers)

    # -- inside ------------------------------------------------------------------------------------------------

    async def _next(self, patience: float | None = None) -> bool:
        """Wait for news; false when none came in time."""
        self._raise_error()
        self._news.clear()
        try:
            async with asyncio.timeout(patience):
                await self._news.wait()
        except TimeoutError:
            return False
        self._raise_error()
        return True

    def _replay(self, resumed: Sequence[Progress]) -> None:
        going_on = {(each.prompt, each.index): each for each in resumed}
        for place, (reader, entry) in enumerate(zip(self._readers, self._entries, strict=True)):
            emitted = {}
            for index in list(entry.emitted):
                said = going_on.get((place, index), Progress(place, index, []))
                if not reader.replay(index, said.tokens, None if said.end is None else _STATUSES[said.end]):
                    emitted[index] = list(said.tokens)
            entry.came_from_elsewhere(emitted)
        self._replayed = [delta for reader in self._readers for delta in reader.take_deltas()]

    def _raise_error(self) -> None:
        error: QuireError | None = next((reader.error for reader in self._readers if reader.error is not None), None)
        if error is not None:
            self.cancel()
            raise error

    def _stop(self, place: int, index: int) -> None:
        self._dispatcher.end(self._entries[place], index, Status.STOPPED)

    def _count_tokens(self, place: int, count: int, since_last: float | None) -> None:
        reader, replica = self._readers[place], max(0, self._entries[place].replica)
        metrics = reader.metrics
        if since_last is None and not reader.num_output:
            assert metrics.first_token_time is not None
            seconds = metrics.first_token_time - metrics.arrival_time
            self._metrics.first_token(replica, seconds, len(reader.request.prompt.tokens), count)
        else:
            self._metrics.tokens(replica, since_last, count)

    def _changed(self, place: int) -> None:
        """One request has news. Only that one is looked at: a body may hold thousands."""
        self._news.set()
        reader, entry = self._readers[place], self._entries[place]
        if place not in self._reports and (reader.is_finished or reader.error is not None):
            self._reports.add(place)
            self._on_finished(reader, entry)
        if self.is_streaming and reader.num_unread > MOST_UNREAD:
            self._pause(entry)

    # -- slow readers ------------------------------------------------------------------------------------------

    def _pause(self, entry: Entry) -> None:
        if entry.is_held or entry.is_over:
            return
        self._dispatcher.hold(entry)
        self._metrics.slow_reader_paused()
        if self._drop_timer is None:
            self._drop_timer = asyncio.get_running_loop().call_later(self._timeout, self._drop)

    def _caught_up(self) -> None:
        self._stop_timer()
        for entry in self._entries:
            if entry.is_held:
                self._dispatcher.resume(entry)

    def _drop(self) -> None:
        seconds = self._timeout
        for reader in self._readers:
            reader.error = RequestFailed(f"the client read nothing for {seconds:g} s, so its request was ended")
        self.cancel()
        self._metrics.slow_reader_dropped()
        if self.on_drop is not None:
            self.on_drop()

    def _stop_timer(self) -> None:
        if self._drop_timer is not None:
            self._drop_timer.cancel()
            self._drop_timer = None
