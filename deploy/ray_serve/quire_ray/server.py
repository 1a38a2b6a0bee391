"""Server: a replica that answers: a whole instance of quire's, at an address of its own for the application's gateways.

With engines in replicas of their own it holds no model. When those come and go, it starts another front for the ones
there are, and lets the front before see its answers through: gateways send new requests to the new address.
"""

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.util import get_node_ip_address

from quire.config.engine import EngineConfig
from quire.observe.logs import configure_logging
from quire.router.sources.source import SourceFailed
from quire_ray.addresses import addresses_of
from quire_ray.hosted_front import HostedFront
from quire_ray.scaling import REQUESTS, check_policy
from quire_ray.secret_file import secret_file

_LOOK_EVERY = 1.0
"""Seconds between looks at which engines there are."""
_log = logging.getLogger(__name__)


class Server:
    """What Serve runs a replica of."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        settings: dict[str, Any],
        member_key: str,
        engine_secret: str,
        prefill: DeploymentHandle | None = None,
        decode: DeploymentHandle | None = None,
    ) -> None:
        """`settings` are `quire serve`'s. With `prefill` and `decode` those are its engines."""
        self._held = AsyncExitStack()
        context = serve.get_replica_context()
        check_policy(context.deployment, context._deployment_config.autoscaling_config)
        self._settings = settings | {"host": get_node_ip_address(), "port": 0, "api_key": member_key}
        self._settings["store"] = str(_store_of_replica(settings.get("store"), context.rank.rank))
        self._secret_file = self._held.enter_context(secret_file(engine_secret))
        self._engines: list[str] = []
        self._roles = [handle for handle in (prefill, decode) if handle is not None]
        self._leaving: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        configure_logging(EngineConfig.from_flat(**settings).observe)
        if self._roles:
            self._engines = await self._found_engines()
        self._front = HostedFront(self._config())
        await self._front.start()
        self._held.push_async_callback(self._drain)
        if self._roles:
            self._following = asyncio.create_task(self._follow_engines())

    async def address(self) -> str:
        """Where gateways reach it."""
        return self._front.url

    async def check_health(self) -> None:
        """Raises what /health says is wrong; Serve then starts another replica."""
        problem = self._front.problem()
        if problem is not None:
            raise RuntimeError(problem)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the policy goes by."""
        return {REQUESTS: float(self._front.num_requests)}

    async def __del__(self) -> None:
        """Serve calls this before it ends a replica, and waits as long as its graceful_shutdown_timeout_s says."""
        await self._held.aclose()

    async def _drain(self) -> None:
        """Every front takes nothing new and sees its answers through."""
        if self._following is not None:
            self._following.cancel()
        await asyncio.gather(self._front.drain(), *self._leaving)

    # -- engines elsewhere -------------------------------------------------------------------------------------

    def _config(self) -> EngineConfig:
        if not self._roles:
            return EngineConfig.from_flat(**self._settings)
        elsewhere = {"engines": ",".join(self._engines), "engine_secret_file": self._secret_file}
        return EngineConfig.from_flat(**self._settings, **elsewhere)

    async def _found_engines(self) -> list[str]:
        """Those that run, of all roles; waits for the first of each."""
        while True:
            try:
                found = await asyncio.gather(*(addresses_of(handle) for handle in self._roles))
            except SourceFailed:
                found = []
            if found and all(found):
                return sorted(address for of_role in found for address in of_role)
            await asyncio.sleep(_LOOK_EVERY)

    async def _follow_engines(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            found = await self._found_engines()
            if found == self._engines:
                continue
            before, self._engines = self._engines, found
            coming = HostedFront(self._config())
            try:
                await coming.start()
            except Exception as error:  # an engine may go again at once; the front before knows others
                _log.error("no front for the engines %s: %s", found, error)
                await coming.drain()
                self._engines = before
                continue
            _log.info("engines are now %s; a front for them is at %s", ", ".join(found), coming.url)
            leaving, self._front = self._front, coming
            task = asyncio.create_task(leaving.drain())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


def _store_of_replica(asked: str | None, rank: int) -> Path:
    """A folder for files, batches and stored responses that no other replica of the node has.

    Ranks are given again, so a replica that takes another's place on its node has what that one had.
    """
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "quire"
    return Path(asked or data).expanduser() / f"server-{rank}"
