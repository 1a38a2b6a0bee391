"""Engine: a replica that computes prompts or answers for the application's servers, as `quire engine --role` does."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from ray import serve
from ray.util import get_node_ip_address

from quire.config.engine import EngineConfig
from quire.observe.logs import configure_logging
from quire.serving.run_engine import offered_engine
from quire_ray.scaling import REQUESTS, check_policy
from quire_ray.server import write_secret

_LOOK_EVERY = 0.2


class Engine:
    """What Serve runs a replica of."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, settings: dict[str, Any], role: str, engine_secret: str
    ) -> None:
        context = serve.get_replica_context()
        check_policy(context.deployment, context._deployment_config.autoscaling_config)
        self._secret_file = write_secret(engine_secret)
        config = EngineConfig.from_flat(**settings, role=role, engine_secret_file=self._secret_file)
        configure_logging(config.observe)
        self._held = AsyncExitStack()
        self._server = await self._held.enter_async_context(offered_engine(config, f"tcp://{get_node_ip_address()}:0"))
        await self._server.ready()

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
        """Servers learn that it is no longer there, see their answers through, and leave it; then it ends."""
        while self._server.num_fronts:
            await asyncio.sleep(_LOOK_EVERY)
        await self._held.aclose()
        Path(self._secret_file).unlink(missing_ok=True)
