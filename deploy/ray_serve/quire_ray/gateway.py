"""Gateway: the replica that Serve's proxies send clients' requests to: quire's router over the application's servers.

It chooses a server by prefix, adapter and load, and keeps of every answer what another server needs to go on with it.
"""

from typing import Any

from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from quire.config.observe import ObserveConfig
from quire.config.router import RouterConfig
from quire.observe.logs import configure_logging
from quire_ray.addresses import ReplicaSource
from quire_ray.hosted_router import HostedRouter


class Gateway:
    """What Serve runs a replica of. No server behind it may be ready: starting it again would not mend that, so its
    health is that it lives."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, settings: dict[str, Any], observe: dict[str, Any], servers: DeploymentHandle
    ) -> None:
        """`settings` are `quire route`'s, `observe` those of its logs."""
        logs = ObserveConfig(**observe)
        configure_logging(logs)
        self._router = HostedRouter(RouterConfig(**settings), logs, [ReplicaSource(servers)])
        await self._router.start()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """What answers; Serve asks for it once the replica is made."""
        return self._router.app

    async def __del__(self) -> None:
        """Serve calls this once no request is left."""
        await self._router.close()
