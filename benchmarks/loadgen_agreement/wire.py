"""Wire: what passes between a load generator and the server, seen from between them.

A server on a shared machine is faster in one minute than in the next, by more than two load generators differ. Each is
therefore set beside the moments of its own requests on the wire: how far it is from those is its own doing alone.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

from benchmarks.loadgen_agreement.quantities import Agreed, Answer, MissingAnswers, agreed

_NOTED_WITHIN = 1.0
_READ = 1 << 16
_Seen = Callable[[bytes, float], None]


@dataclass(slots=True)
class Exchange:
    """A request and its answer; seconds on `time.perf_counter`."""

    sent: float
    pieces: list[float] = field(default_factory=list)
    """When each piece with text passed."""
    ended: float | None = None


@dataclass(slots=True)
class Wire:
    """A port in front of a server, and what passed it since it was last asked."""

    port: int
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, requests: int, tokens: int) -> Agreed:
        """The figures of so many requests, each answered with so many tokens; forgets them."""
        # a client may have read its answer before the wire has noted it
        patience = time.monotonic() + _NOTED_WITHIN
        while sum(each.ended is not None for each in self.exchanges) < requests and time.monotonic() < patience:
            time.sleep(0.001)
        seen, self.exchanges = self.exchanges, []
        answers, ends = [], []
        for each in seen:
            if each.pieces and each.ended is not None:
                answers.append(Answer(each.pieces[0] - each.sent, each.pieces[-1] - each.sent, tokens))
                ends.append(each.ended)
        if len(answers) != requests:
            raise MissingAnswers(f"{len(answers)} whole answers of {requests} passed the wire")
        return agreed(answers, max(ends) - min(each.sent for each in seen))


class Connection:
    """One of a generator's: each request comes behind the answer to the last."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._exchange: Exchange | None = None
        self._begun_line = b""

    def asked(self, data: bytes, now: float) -> None:
        if self._exchange is None and data.startswith(b"POST "):
            self._exchange = Exchange(now)
            self._wire.exchanges.append(self._exchange)

    def answered(self, data: bytes, now: float) -> None:
        *lines, self._begun_line = (self._begun_line + data).split(b"\n")
        for line in lines:
            if self._exchange is None or not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                self._exchange.ended = now
                self._exchange = None
            elif _has_text(line.removeprefix(b"data: ")):
                self._exchange.pieces.append(now)


def _has_text(event: bytes) -> bool:
    return any(choice.get("text") for choice in json.loads(event)["choices"])


@contextmanager
def wire_to(server_port: int) -> Iterator[Wire]:
    """Passes everything on, both ways, and keeps the moments of what asks for text."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", server_port)
        connection = Connection(wire)
        await asyncio.gather(
            _pass_on(reader, to_server, connection.asked), _pass_on(from_server, writer, connection.answered)
        )

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(connected, "127.0.0.1", 0))
    wire = Wire(server.sockets[0].getsockname()[1])
    thread = Thread(target=loop.run_forever, name="wire")
    thread.start()
    try:
        yield wire
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(_end_all_others())
        loop.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: _Seen) -> None:
    try:
        while data := await reader.read(_READ):
            now = time.perf_counter()
            writer.write(data)
            seen(data, now)  # behind the write: nobody waits for it
            await writer.drain()
    except OSError:
        pass  # whoever hangs up has said what there was to say
    finally:
        writer.close()


async def _end_all_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # connections that were closed just now hang up in the next turn of the loop
