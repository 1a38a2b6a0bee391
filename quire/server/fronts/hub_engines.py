"""HubEngines: the engines of a server with several fronts: each behind a unix socket that all fronts connect to."""

import asyncio
import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path

from quire.config.engine import EngineConfig
from quire.observe.metrics import Metrics
from quire.serving.engine_link import EngineAddress
from quire.serving.engine_server import EngineServer
from quire.serving.process_engines import ProcessEngines
from quire.serving.run_engine import engine_seed

_SECRET = "secret"


class HubEngines:
    """None where the settings name engines on other hosts: fronts connect to those by themselves."""

    def __init__(self, config: EngineConfig, weights: dict[str, float], metrics: Metrics) -> None:
        """Raises what is wrong with the model before anything is made."""
        secret = secrets.token_hex(32)
        self._config = config
        self._processes = ProcessEngines(config, engine_seed(secret.encode()), weights)
        self.folder = Path(self._processes.folder)
        """Of sockets and of what fronts share; only this user reaches it."""
        (self.folder / _SECRET).write_text(secret, encoding="ascii")
        count = config.server.num_local_engines if config.server.engines == "process" else 0
        self._servers = [
            EngineServer(
                partial(self._processes.client, number),
                EngineAddress("unix", path=str(self.folder / f"engine-{number}")),
                secret.encode(),
                metrics=metrics,
                step_timeout=config.server.step_timeout,
                number=number,
            )
            for number in range(count)
        ]

    def front_config(self) -> EngineConfig:
        """The settings with which a front reaches the engines."""
        server = replace(self._config.server, api_server_count=1)
        if self._servers:
            addresses = ",".join(str(each.address) for each in self._servers)
            secret_file = str(self.folder / _SECRET)
            server = replace(
                server,
                engines=addresses,
                replicas=1,
                prefill_engines=0,
                decode_engines=0,
                kv_transfer=False,
                kv_carrier="sockets",
                engine_secret_file=secret_file,
                sleep_after=None,  # the engines sleep by themselves
            )
        return replace(self._config, server=server)

    async def start(self) -> None:
        """Returns before they are ready."""
        for server in self._servers:
            await server.start()

    async def ready(self) -> None:
        """Wait for all; raises a ConfigError where the settings cannot start them."""
        await asyncio.gather(*(server.ready() for server in self._servers))

    def restarts(self) -> list[int]:
        """Of each."""
        return [slot.restarts for server in self._servers for slot in server.supervisor.slots]

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))
        self._processes.close()
