"""Runs an engine that fronts on other hosts use, until a signal."""

import asyncio
import hmac
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError
from quire.core.shared_secret import read_secret
from quire.observe.logs import configure_logging
from quire.observe.metrics import Metrics
from quire.serving.engine_link import EngineAddress
from quire.serving.engine_server import EngineServer
from quire.serving.process_engines import ProcessEngines
from quire.serving.tls import tls_context

_log = logging.getLogger(__name__)


def run_engine(config: EngineConfig, listen: str) -> int:
    """Offer an engine at an address until a signal; returns the exit code."""
    import uvloop

    configure_logging(config.observe)
    return uvloop.run(_serve(config, listen))


async def _serve(config: EngineConfig, listen: str) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with offered_engine(config, listen) as server:
        _log.info("an engine listens at %s while it loads", server.address)
        starting, stopping = asyncio.create_task(server.ready()), asyncio.create_task(stopped.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()  # raises where the settings cannot start it
            _log.info("the engine is ready at %s", server.address)
        await stopping
    return 0


@asynccontextmanager
async def offered_engine(config: EngineConfig, listen: str) -> AsyncIterator[EngineServer]:
    """An engine that listens at an address and begins to load; it ends with the block."""
    address, secret = EngineAddress.read(listen), read_secret(config.server.engine_secret_file)
    tls = tls_context(config.server) if address.scheme == "tls" else None
    if address.scheme == "tls" and tls is None:
        raise ConfigError("a tls:// address needs --ssl-certfile and --ssl-keyfile")
    kv_listen = None if address.scheme == "unix" else str(EngineAddress(address.scheme, address.host, 0))
    engines = ProcessEngines(config, engine_seed(secret), kv_listen=kv_listen, kv_secret=secret)
    server = EngineServer(
        lambda on_message: engines.client(0, on_message),
        address,
        secret,
        metrics=Metrics(config.name(), 1),
        step_timeout=config.server.step_timeout,
        tls=tls,
    )
    try:
        try:
            await server.start()
        except OSError as error:
            raise ConfigError(f"cannot listen at {listen}: {error.strerror or error}") from None
        yield server
    finally:
        await server.close()
        engines.close()


def engine_seed(secret: bytes) -> int:
    """The noise of engines that share a secret is the same, so that a request may move between them."""
    return int.from_bytes(hmac.digest(secret, b"seed of sampling noise", "sha256")[:8]) >> 2
