"""Gateway: the replica that Serve's proxies send clients' requests to: quire's router over the application's servers.

It chooses a server by prefix, adapter and load, and keeps of every answer what another server needs to go on with it.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Receive, Scope, Send

from quire.config.observe import ObserveConfig
from quire.config.router import RouterConfig
from quire.observe.logs import configure_logging
from quire.observe.router_metrics import RouterMetrics
from quire.router.router import Router
from quire.server.drain import Drain
from quire.server.gate.key_source import KeySource
from quire.server.router.app import make_router_app
from quire_ray.addresses import ReplicaSource

_ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_LOOK_EVERY = 5.0
"""Seconds between looks at whether the file of keys is another."""
_log = logging.getLogger(__name__)


class Gateway:
    """What Serve runs a replica of."""

    async def __init__(self, settings: dict[str, Any], observe: dict[str, Any], servers: DeploymentHandle) -> None:
        """`settings` are `quire route`'s, `observe` those of its logs."""
        config, logs = RouterConfig(**settings), ObserveConfig(**observe)
        configure_logging(logs)
        self._keys_file = None if config.keys is None else Path(config.keys).expanduser()
        self._keys = KeySource(config.api_key, self._keys_file)
        metrics = RouterMetrics(_ROUTES)
        self._router = Router(config, metrics, [ReplicaSource(servers)])
        await self._router.start()
        self._app = WithoutPrefix(make_router_app(self._router, self._keys.ring, Drain(), metrics, logs))
        self._reading = asyncio.create_task(self._follow_keys())

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """What answers; Serve asks for it once the replica is made."""
        return self._app

    async def __del__(self) -> None:
        """Serve calls this once it has no request left."""
        self._reading.cancel()
        await self._router.close()

    async def _follow_keys(self) -> None:
        """No signal reaches a replica, so the file is looked at."""
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
