"""HostedRouter: quire's router as an ASGI application, for a program that brings the HTTP server: Serve's replicas."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from quire.config.observe import ObserveConfig
from quire.config.router import RouterConfig
from quire.observe.router_metrics import RouterMetrics
from quire.router.router import Router
from quire.router.sources.source import Source
from quire.server.drain import Drain
from quire.server.gate.key_source import KeySource
from quire.server.router.app import make_router_app

_ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_LOOK_EVERY = 5.0
"""Seconds between looks at whether the file of keys is another: no signal reaches a replica."""


class HostedRouter:
    """From start to close."""

    def __init__(self, config: RouterConfig, observe: ObserveConfig, sources: Sequence[Source]) -> None:
        """Raises ConfigError. `sources` name its members."""
        self._keys_file = None if config.keys is None else Path(config.keys).expanduser()
        self._keys = KeySource(config.api_key, self._keys_file)
        metrics = RouterMetrics(_ROUTES)
        self._router = Router(config, metrics, sources)
        self.app: ASGIApp = WithoutPrefix(make_router_app(self._router, self._keys.ring, Drain(), metrics, observe))
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._router.start()
        self._reading = asyncio.create_task(self._follow_keys())

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        await self._router.close()

    async def _follow_keys(self) -> None:
        last = self._keys_changed_at()
        while self._keys_file is not None:
            await asyncio.sleep(_LOOK_EVERY)
            now = self._keys_changed_at()
            if now != last:
                last = now
                self._keys.reload()

    def _keys_changed_at(self) -> float:
        if self._keys_file is not None:
            with suppress(OSError):
                return self._keys_file.stat().st_mtime
        return 0.0


class WithoutPrefix:
    """Takes an application's route_prefix away: the gate and the router know routes by their own names."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = scope.get("root_path", "").rstrip("/")
        if prefix and scope.get("path", "").startswith(prefix):
            path = scope["path"][len(prefix) :] or "/"
            raw = (scope.get("raw_path") or scope["path"].encode())[len(prefix.encode()) :] or b"/"
            scope = {**scope, "path": path, "raw_path": raw, "root_path": ""}
        await self._app(scope, receive, send)
