"""A server in a process of its own, for signals: prints where it listens, and what becomes of it.

Run as `python -m tests.server.listen.listen_process KEYS [DRAIN_TIMEOUT]`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from quire.config.observe import ObserveConfig
from quire.config.server import ServerConfig
from quire.observe.logs import RequestLog
from quire.server.drain import Drain
from quire.server.errors import exception_handlers
from quire.server.gate.gate import guarded
from quire.server.gate.key_source import KeySource
from quire.server.listen.address import bind, url_of
from quire.server.listen.listen import Listener
from tests.server.gate.gate_app import Metrics, Seen


def say(text: str) -> None:
    print(text, flush=True)


async def main(keys_file: str, drain_timeout: str | None) -> int:
    go_on = asyncio.Event()
    drain = Drain()
    keys = KeySource(None, Path(keys_file))

    async def stream(request: Request) -> Response:
        async def pieces() -> AsyncIterator[str]:
            yield "first\n"
            await go_on.wait()
            yield "last\n"

        return StreamingResponse(pieces())

    async def release(request: Request) -> Response:
        go_on.set()
        return PlainTextResponse("released")

    async def health(request: Request) -> Response:
        return PlainTextResponse("draining" if drain.begun else "ok")

    def on_reload() -> None:
        say(f"reload {keys.reload()}")

    routes = [
        Route("/health", health),
        Route("/release", release),
        Route("/v1/stream-it", stream, methods=["POST"]),
    ]
    config = ServerConfig(port=0, drain_timeout=None if drain_timeout is None else float(drain_timeout))
    app = guarded(
        Starlette(routes=routes, exception_handlers=exception_handlers()),
        keys=keys.ring,
        drain=drain,
        metrics=Metrics(Seen()),
        log=RequestLog(ObserveConfig()),
    )
    listening = bind(config)
    say(url_of(listening, config))
    return await Listener(app, config, drain, on_reload=on_reload).run(listening)


if __name__ == "__main__":
    sys.exit(uvloop.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)))
