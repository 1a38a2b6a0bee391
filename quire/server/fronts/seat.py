"""Seat: a front's place among several: its socket, what it shares with the others, and the way to the hub."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec

from quire.config.engine import EngineConfig
from quire.core.adapter import AdapterRef
from quire.server.batches.desk import BatchDesk
from quire.server.batches.forwarded import Question, answer_question
from quire.server.fronts.peer import Handler, Peer
from quire.server.fronts.pulse import Pulse
from quire.server.gate.usage_table import UsageTable
from quire.server.history import load_of
from quire.server.overview import Overview, overview_of
from quire.serving.async_llm import AsyncLLM
from quire.serving.board import Board
from quire.serving.link import Link

BOARD, USAGE = "board", "usage"
"""Files in the hub's folder."""
BATCHES_RUN_ON = 0
"""The front that runs batches; the others forward what is asked of them."""


class FrontSettings(msgspec.Struct, frozen=True):
    """How a front is started."""

    config: EngineConfig
    """With the hub's engines as addresses."""
    number: int
    listening: int
    """The socket on which it listens, as an open file."""
    link: int
    """The socket to the hub, as an open file."""
    folder: str
    """Of what fronts share."""


class Seat:
    """Lives on the front's event loop."""

    def __init__(self, settings: FrontSettings) -> None:
        self.number = settings.number
        self.listening = socket.socket(fileno=settings.listening)
        folder = Path(settings.folder)
        self.board = Board.open(folder / BOARD, settings.number)
        self.usage = UsageTable(folder / USAGE, settings.number)
        self._link = settings.link
        self._peer: Peer | None = None

    @property
    def runs_batches(self) -> bool:
        return self.number == BATCHES_RUN_ON

    @property
    def hub(self) -> Peer:
        assert self._peer is not None, "connect() comes first"
        return self._peer

    async def connect(self) -> None:
        """To the hub, before anything else."""
        reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=self._link))
        self._peer = Peer(Link(reader, writer))

    def serve(
        self,
        llm: AsyncLLM,
        batches: BatchDesk,
        *,
        drain: Callable[[], object],
        reload: Callable[[], object],
        forget_adapter: Callable[[str], Awaitable[None]],
    ) -> None:
        """The front serves from now on: it takes orders, and answers what the hub and other fronts ask."""

        async def overview(given: msgspec.Raw) -> Overview:
            return overview_of(llm, msgspec.msgpack.decode(given, type=str | None))

        async def pulse(_: msgspec.Raw) -> Pulse:
            engines = (slot.client.stats for slot in llm.fleet.supervisor.slots)
            return Pulse(llm.metrics.figures(), load_of(engines))

        async def adapter_loaded(given: msgspec.Raw) -> None:
            if llm.adapters is not None:
                llm.adapters.remember(msgspec.msgpack.decode(given, type=AdapterRef))

        async def adapter_unloaded(given: msgspec.Raw) -> None:
            await forget_adapter(msgspec.msgpack.decode(given, type=str))

        self.hub.handlers.update(
            adapter_loaded=adapter_loaded,
            adapter_unloaded=adapter_unloaded,
            overview=overview,
            pulse=pulse,
            batches=partial(answer_question, batches),
            drain=_order(drain),
            reload=_order(reload),
        )
        self.hub.tell("serves")

    async def forward(self, question: Question) -> msgspec.Raw:
        """Ask the front that runs batches."""
        return await self.hub.ask("batches", msgspec.Raw, question)


def _order(act: Callable[[], object]) -> Handler:
    async def obey(_: msgspec.Raw) -> None:
        act()

    return obey
