"""Engine: a replica that computes prompts or answers for the application's servers, as `quire engine --role` does."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from ray import serve
from ray.util import get_node_ip_address

from quire.config.engine import EngineConfig
from quire.observe.logs import configure_logging
from quire.serving.run_engine import offered_engine
from quire_ray.scaling import REQUESTS, check_policy
from quire_ray.secret_file import secret_file

_LOOK_EVERY = 0.2


class Engine:
    """What Serve runs a replica of."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, settings: dict[str, Any], role: str, engine_secret: str
    ) -> None:
        """`settings` are `quire serve`'s."""
        self._held = AsyncExitStack()
        context = serve.get_replica_context()
        check_policy(context.deployment, context._deployment_config.autoscaling_config)
        file = self._held.enter_context(secret_file(engine_secret))
        config = EngineConfig.from_flat(**settings, role=role, engine_secret_file=file)
        configure_logging(config.observe)
        self._server = await self._held.enter_async_context(offered_engine(config, f"tcp://{get_node_ip_address()}:0"))
        await self._server.ready()
        self._held.push_async_callback(self._left_by_fronts)

    async def address(self) -> str:
        """Where servers and other engines reach it."""
        return str(self._server.address)

    async def check_health(self) -> None:
        """Raises why it makes no progress; Serve then starts another replica."""
        problem = self._server.supervisor.health_problem()
        if problem is not None:
            raise RuntimeError(problem)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the policy goes by."""
        return {REQUESTS: float(self._server.num_live)}

    async def __del__(self) -> None:
        """Serve calls this before it ends a replica, and waits as long as its graceful_shutdown_timeout_s says."""
        await self._held.aclose()

    async def _left_by_fronts(self) -> None:
        """Servers learn that it is no longer there, see their answers through, and leave it."""
        while self._server.num_fronts:
            await asyncio.sleep(_LOOK_EVERY)
