"""From settings to a server that answers, and back to a free port."""

import asyncio
import gc
import logging
import os
import socket
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quire.config.engine import EngineConfig
from quire.core.stats import FinishedRequest
from quire.observe.logs import configure_logging
from quire.serving.begun_engines import begun_engines

# Everything else is imported once engines have begun, which import their own modules meanwhile.
if TYPE_CHECKING:
    from quire.server.batches.runner import Batches
    from quire.server.gate.key_source import KeySource
    from quire.serving.async_llm import AsyncLLM
    from quire.serving.child_process import ChildProcess

_log = logging.getLogger(__name__)


def run_server(config: EngineConfig) -> int:
    """Serve until a signal; returns the exit code."""
    import uvloop

    gc.disable()  # until routes are made: all that a start makes stays
    configure_logging(config.observe)
    return uvloop.run(_serve(config))


async def _serve(config: EngineConfig) -> int:
    async with begun_engines(config.server) as begun:
        return await _Run(config).serve(begun)


class _Run:
    """One server from start to end."""

    def __init__(self, config: EngineConfig) -> None:
        from quire.observe.traces import make_tracer
        from quire.server.startup import StartUp

        self._config = config
        self._startup = StartUp()
        self._tracer = make_tracer(config.observe)

    async def serve(self, begun: "list[ChildProcess]") -> int:
        from quire.server.gate.key_source import KeySource
        from quire.server.listen.address import bind
        from quire.serving.async_llm import AsyncLLM

        server = self._config.server
        # whatever is wrong with the settings is found out before anything takes its time
        keys = KeySource(server.api_key, None if server.keys is None else Path(server.keys))
        with closing(bind(server)) as listening:
            llm = AsyncLLM(
                self._config,
                tenant_weights={} if keys.ring is None else keys.ring.weights(),
                begun=begun,
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

    async def _serve_on(self, listening: socket.socket, llm: "AsyncLLM", keys: "KeySource") -> int:
        from quire.server.app import make_app
        from quire.server.batches.answers import batch_answers
        from quire.server.batches.runner import Batches
        from quire.server.drain import Drain
        from quire.server.gate.account import Account
        from quire.server.listen.address import url_of
        from quire.server.listen.listen import listen
        from quire.server.serving import Serving
        from quire.server.store.store import Store

        folder = _store_folder(self._config.server.store)
        serving = Serving(llm, _names(self._config), Store(folder), Drain(), self._startup.parts)
        ring, everyone = keys.ring, Account()
        batches = Batches(
            serving.store,
            folder / "batches",
            batch_answers(serving, lambda tenant: everyone if ring is None else ring.account_of(tenant)),
            may_run=lambda tenant: ring is None or ring.has_tenant(tenant),
        )
        app = make_app(serving, batches, ring, self._config)
        self._startup.done("making routes")
        gc.enable()
        await batches.start()
        told = asyncio.create_task(self._tell_when_ready(llm, url_of(listening, self._config.server)))
        serving_task = asyncio.create_task(
            listen(
                app,
                self._config.server,
                listening,
                serving.drain,
                on_reload=partial(_reload, keys, llm, batches),
                on_connections=llm.metrics.connections,
            )
        )
        try:
            await asyncio.wait({told, serving_task}, return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                told.result()  # raises where no engine can be started
            return await serving_task
        finally:
            for task in (told, serving_task):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await serving_task
            await batches.close()
            await asyncio.to_thread(serving.store.close)

    async def _tell_when_ready(self, llm: "AsyncLLM", url: str) -> None:
        _log.info("listening on %s while the engine loads", url)
        started = await llm.ready()
        gc.freeze()  # routes and libraries never go: no collection need go through them again
        _log.info("ready on %s, %s", url, self._startup.told(started))

    def _finished(self, record: FinishedRequest) -> None:
        if self._tracer is not None:
            self._tracer.trace_request(record, record.traceparent)


def _reload(keys: "KeySource", llm: "AsyncLLM", batches: "Batches") -> None:
    """Read the keys again; what runs for those that are gone ends."""
    if keys.reload() and keys.ring is not None:
        llm.set_tenant_weights(keys.ring.weights())
        batches.tenants_changed()


def _names(config: EngineConfig) -> tuple[str, ...]:
    """What clients may call the model: what was said, or what it was started by."""
    return config.server.names() or (config.model.model,)


def _store_folder(asked: str | None) -> Path:
    if asked is not None:
        return Path(asked).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "quire"
