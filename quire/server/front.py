"""Front: one process that answers clients: reads HTTP, tokenizes, hands requests to engines and streams their answers.

A front alone also starts the engines. One of several has a seat: the hub gives it its socket and its engines, and it
shares limits, figures and batches with the others. One that runs inside a program of others has a host, which ends it.
"""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.core.stats import FinishedRequest
from quire.observe.traces import make_tracer
from quire.server.gate.key_source import KeySource
from quire.server.listen.address import bind, url_of
from quire.server.startup import StartUp
from quire.serving.async_llm import AsyncLLM
from quire.serving.board import Board, Figure
from quire.serving.child_process import ChildProcess

if TYPE_CHECKING:
    from quire.server.batches.forwarded import ForwardedBatches
    from quire.server.batches.runner import Batches
    from quire.server.fronts.seat import Seat
    from quire.server.serving import Serving

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """A front that listens, as its host sees it."""

    url: str
    llm: AsyncLLM
    stop: Callable[[], None]
    """What SIGTERM does: the first time drain, the second time end at once."""


class Front:
    """From start to end."""

    def __init__(
        self,
        config: EngineConfig,
        seat: "Seat | None" = None,
        *,
        begun: list[ChildProcess] | None = None,
        host: Callable[[Listening], None] | None = None,
    ) -> None:
        """`begun` are processes for its first engines. A `host` is called once it listens; signals are then the
        host's."""
        self._config = config
        self._seat = seat
        self._begun = begun
        self._host = host
        self._board = Board() if seat is None else seat.board
        self._startup = StartUp()
        self._tracer = make_tracer(config.observe)

    async def serve(self) -> int:
        """Until a signal, or an order of the hub; returns the exit code."""
        server, seat = self._config.server, self._seat
        # whatever is wrong with the settings is found out before anything takes its time
        keys = KeySource(
            server.api_key, None if server.keys is None else Path(server.keys), None if seat is None else seat.usage
        )
        with closing(bind(server) if seat is None else seat.listening) as listening:
            llm = AsyncLLM(
                self._config,
                tenant_weights={} if keys.ring is None else keys.ring.weights(),
                board=self._board,
                begun=self._begun,
                on_finished=self._finished,
            )
            self._startup.done("reading settings")
            try:
                # engines load in processes of their own, while this one reads the tokenizer and makes its routes
                await llm.start()
                self._startup.done("reading the tokenizer")
                return await self._serve_on(listening, llm, keys)
            finally:
                await llm.close()
                if self._tracer is not None:
                    await asyncio.to_thread(self._tracer.close)  # what is left is sent

    async def _serve_on(self, listening: socket.socket, llm: AsyncLLM, keys: KeySource) -> int:
        from quire.server.app import make_app
        from quire.server.drain import Drain
        from quire.server.listen.listen import Listener
        from quire.server.serving import Serving
        from quire.server.store.store import Store

        seat, folder = self._seat, _store_folder(self._config.server.store)
        hub = None if seat is None else seat.hub
        serving = Serving(llm, self._config.names(), Store(folder), Drain(), self._startup.parts, hub)
        runner, batches = self._batches(serving, keys, folder / "batches")
        reload = partial(_reload, keys, llm, runner)
        listener = Listener(
            make_app(serving, batches, keys.ring, self._config),
            self._config.server,
            serving.drain,
            on_reload=reload,
            count_connections=partial(self._count_connections, llm),
            takes_signals=seat is None and self._host is None,
        )
        self._startup.done("making routes")
        gc.enable()
        if runner is not None:
            await runner.start()
        told = asyncio.create_task(self._tell_when_ready(llm, url_of(listening, self._config.server)))
        serving_task = asyncio.create_task(listener.run(listening))
        recording = [] if seat is not None else [asyncio.create_task(serving.recorded.keep())]
        if self._host is not None:
            self._host(Listening(url_of(listening, self._config.server), llm, listener.stop))
        if seat is not None:
            seat.serve(llm, batches, drain=listener.stop, reload=reload, forget_adapter=serving.loras.forget)
        try:
            await asyncio.wait({told, serving_task}, return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                told.result()  # raises where no engine can be started
            return await serving_task
        finally:
            for task in (told, serving_task, *recording):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await serving_task
            if runner is not None:
                await runner.close()
            serving.close()
            await asyncio.to_thread(serving.store.close)

    def _batches(
        self, serving: "Serving", keys: KeySource, folder: Path
    ) -> tuple["Batches | None", "Batches | ForwardedBatches"]:
        """What runs batches, if that is here, and what routes ask about them."""
        from quire.server.batches.answers import batch_answers
        from quire.server.batches.forwarded import ForwardedBatches
        from quire.server.batches.runner import Batches
        from quire.server.gate.account import Account
        from quire.server.store.files import Files

        ring, everyone = keys.ring, Account()
        answers = batch_answers(serving, lambda tenant: everyone if ring is None else ring.account_of(tenant))
        if self._seat is not None and not self._seat.runs_batches:
            return None, ForwardedBatches(self._seat.forward, Files(serving.store), tuple(answers))
        runner = Batches(serving.store, folder, answers, may_run=lambda tenant: ring is None or ring.has_tenant(tenant))
        return runner, runner

    async def _tell_when_ready(self, llm: AsyncLLM, url: str) -> None:
        if self._seat is None:
            _log.info("listening on %s while the engine loads", url)
        started = await llm.ready()
        gc.freeze()  # routes and libraries never go: no collection need go through them again
        if self._seat is None:
            _log.info("ready on %s, %s", url, self._startup.told(started))

    def _count_connections(self, llm: AsyncLLM, here: int) -> int:
        llm.metrics.connections(here)
        self._board.put(Figure.CONNECTIONS, here)
        return int(self._board.total(Figure.CONNECTIONS))

    def _finished(self, record: FinishedRequest) -> None:
        if self._tracer is not None:
            self._tracer.trace_request(record, record.traceparent)


def _reload(keys: KeySource, llm: AsyncLLM, runner: "Batches | None") -> None:
    """Read the keys again; what runs for those that are gone ends."""
    if keys.reload() and keys.ring is not None:
        llm.set_tenant_weights(keys.ring.weights())
        if runner is not None:
            runner.tenants_changed()


def _store_folder(asked: str | None) -> Path:
    if asked is not None:
        return Path(asked).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "quire"
