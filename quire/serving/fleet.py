"""Fleet: all engines of a server and what they run: wires clients, the supervisor and the dispatcher together."""

import asyncio
import logging
from collections.abc import Callable

from quire.config.engine import EngineConfig
from quire.config.server import ServerConfig
from quire.core.errors import ConfigError, RequestFailed, Unavailable
from quire.core.shared_secret import read_secret
from quire.core.stats import EngineStats
from quire.observe.metrics import Metrics
from quire.serving.board import Board
from quire.serving.child_process import ChildProcess
from quire.serving.client import EngineClient
from quire.serving.dispatcher import Dispatcher
from quire.serving.engine_link import EngineAddress
from quire.serving.inline_client import InlineClient
from quire.serving.messages import FromEngine, Report, Started, StartFailed, Weights
from quire.serving.process_engines import ProcessEngines
from quire.serving.remote_client import RemoteClient
from quire.serving.supervisor import Slot, Supervisor

_LOOK_EVERY = 0.25
"""Seconds between looks at whether requests wait in vain."""
_log = logging.getLogger(__name__)


class Fleet:
    """Lives on one event loop."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        seed: int,
        tenant_weights: dict[str, float] | None = None,
        metrics: Metrics,
        board: Board | None = None,
        begun: list[ChildProcess] | None = None,
        on_other: Callable[[EngineClient, FromEngine], None],
        on_report: Callable[[int, EngineStats], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """`begun` are processes for its first engines. `on_other` is told what is not about requests: blocks, checks,
        profiles.
        """
        self._config = config
        self._metrics = metrics
        self._on_other = on_other
        self._on_report = on_report
        self._on_lost = on_lost
        _refuse_what_is_for_engines(config.server)
        self._local = ProcessEngines(config, seed, tenant_weights, begun)
        server = config.server
        self._addresses = [EngineAddress.read(each) for each in server.engine_addresses()]
        self._secret = read_secret(server.engine_secret_file) if self._addresses else b""
        self.supervisor: Supervisor[EngineClient] = Supervisor(
            self._new_client,
            server.num_engines,
            step_timeout=server.step_timeout,
            outage_timeout=server.outage_timeout,
            on_lost=self._lost,
        )
        self.dispatcher = Dispatcher(self.supervisor.ready, server.routing, board)
        self._first: asyncio.Future[Started] | None = None
        """Done when an engine is ready for the first time, or with why none ever will be."""
        self._outages: asyncio.Task[None] | None = None

    @property
    def folder(self) -> str:
        """Where profiles may be written; only this user reaches it."""
        return self._local.folder

    @property
    def is_asleep(self) -> bool:
        """Whether there are engines and all sleep, as they last reported."""
        ready = self.supervisor.ready()
        return bool(ready) and all(client.stats.sleep_level for client in ready)

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every engine; returns before they are ready."""
        self._first = asyncio.get_running_loop().create_future()
        await self.supervisor.start()
        self._outages = asyncio.create_task(self._end_requests_in_outages())

    async def ready(self) -> Started:
        """Wait until an engine takes requests; raises ConfigError where the settings do not allow that."""
        assert self._first is not None, "start() comes first"
        return await asyncio.shield(self._first)

    async def close(self) -> None:
        """End every engine; what is still live fails."""
        if self._outages is not None:
            self._outages.cancel()
        await self.supervisor.close()
        self.dispatcher.fail_all(RequestFailed("the request was not completed: the server is shutting down"))
        self._local.close()

    # -- requests ----------------------------------------------------------------------------------------------

    def check_outage(self) -> None:
        """Raise Unavailable when no engine has been ready for too long."""
        outage = self.supervisor.outage()
        if outage is not None:
            raise self._unavailable(outage)

    def set_tenant_weights(self, weights: dict[str, float]) -> None:
        """In the engines that run or start now, and in those that come after them."""
        self._local.tenant_weights = weights
        for slot in self.supervisor.slots:
            slot.client.send(Weights(weights))

    # -- inside ------------------------------------------------------------------------------------------------

    def _take(self, client: EngineClient, message: FromEngine) -> None:
        if isinstance(message, Report):
            self.dispatcher.report(message)
            self._metrics.engine(client.number, message.stats)
            self._on_report(client.number, message.stats)
        elif isinstance(message, Started):
            _log.info("engine %d is ready (%s)", client.number, _phases(message))
            self.supervisor.became_ready(client)
            if self._addresses:  # engines that start here read them with their settings
                client.send(Weights(self._local.tenant_weights))
            if self._first is not None and not self._first.done():
                self._first.set_result(message)
            self.dispatcher.engine_ready()
        elif isinstance(message, StartFailed):
            self._never_ready(message.message)
        else:
            self._on_other(client, message)

    def _lost(self, slot: Slot[EngineClient], cause: str) -> None:
        self._metrics.engine_lost(slot.number, cause.partition(":")[0], given_up=slot.is_given_up)
        self._on_lost(slot.number)
        if not self.supervisor.tells_who_started(slot):
            count = len(self.dispatcher.journal.on_client(slot.client))
            _log.error("engine %d is lost (%s); its %d requests go on elsewhere", slot.number, cause, count)
        self.dispatcher.engine_lost(slot.client)
        if all(slot.is_given_up for slot in self.supervisor.slots):
            self._never_ready(cause)

    def _never_ready(self, why: str) -> None:
        """At the first start it is the settings' fault, and who started the server is told; later it may pass."""
        if self._first is not None and not self._first.done():
            self._first.set_exception(ConfigError(why))

    async def _end_requests_in_outages(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            outage = self.supervisor.outage()
            if outage is not None and len(self.dispatcher.journal):
                _log.error("%s: %d requests fail", outage, len(self.dispatcher.journal))
                self.dispatcher.fail_all(self._unavailable(outage))

    def _unavailable(self, outage: str) -> Unavailable:
        """The words say when to come back too: a stream that has begun has no headers left for that."""
        wait = self.supervisor.retry_after()
        return Unavailable(f"{outage}; try again in about {wait:.0f} s", retry_after=wait)

    def _new_client(self, number: int) -> EngineClient:
        server = self._config.server
        if self._addresses:
            return RemoteClient(number, self._addresses[number], self._secret, self._take, server.engine_ca_file)
        if server.engines == "inline":
            return InlineClient(self._local.settings(number), self._take)
        return self._local.client(number, self._take)


def _refuse_what_is_for_engines(server: ServerConfig) -> None:
    if server.role != "both":
        raise ConfigError(
            f"--role is {server.role}, but it is for quire engine; quire serve takes --prefill-engines and "
            "--decode-engines."
        )
    if server.kv_transfer and server.engine_addresses():
        raise ConfigError("--kv-transfer is for whoever starts the engines; give it to quire engine.")
    if server.kv_transfer and server.num_engines == 1:
        raise ConfigError("--kv-transfer is between engines, and there is one; give --replicas, or leave it out.")


def _phases(started: Started) -> str:
    return ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in started.seconds)
