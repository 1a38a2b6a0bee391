"""Engines' processes that begin before the server's own modules are imported: both import at the same time.

Imports little itself.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quire.config.server import ServerConfig
from quire.serving.child_process import ENGINE, ChildProcess
from quire.serving.shares import replica_share


@asynccontextmanager
async def begun_engines(server: ServerConfig) -> AsyncIterator[list[ChildProcess]]:
    """A process for each engine that runs on this host, by number; those that nobody took are ended."""
    count = server.num_local_engines if server.engines == "process" else 0
    begun = [ChildProcess() for _ in range(count)]
    try:
        for number, process in enumerate(begun):
            await process.begin(ENGINE, replica_share(number, count).environment)
        yield begun
    finally:
        for process in begun:
            await process.end(patience=0.0)
