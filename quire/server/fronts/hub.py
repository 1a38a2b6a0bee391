"""Hub: the parent of several fronts. It owns the port, the engines and what the fronts share, and serves no client.

Whatever dies is replaced: a front takes its own connections with it, an engine nothing at all. When the hub itself
dies, so do its fronts and engines.
"""

import asyncio
import logging
import signal
from pathlib import Path

import msgspec

from quire.config.engine import EngineConfig
from quire.core.adapter import AdapterRef
from quire.core.errors import ConfigError, Unavailable
from quire.observe import rates
from quire.observe.figures import FrontFigures, merged
from quire.observe.metrics import Metrics
from quire.server.fronts.front_process import FrontProcess
from quire.server.fronts.hub_engines import HubEngines
from quire.server.fronts.peer import Handler
from quire.server.fronts.seat import BATCHES_RUN_ON, BOARD, USAGE, FrontSettings
from quire.server.fronts.shared_port import SharedPort
from quire.server.gate.key_source import KeySource
from quire.server.gate.usage_table import UsageTable
from quire.server.history import EngineLoad, History, Sample, sample_of
from quire.server.listen.listen import CUT_OFF, DRAINED
from quire.server.overview import Overview, together
from quire.server.startup import StartUp
from quire.serving.board import Board
from quire.serving.supervisor import Slot, Supervisor

_PATIENCE = 10.0
"""Seconds that a question to another front waits for that front to be back."""
_LOOK_EVERY = 0.02
"""Seconds between looks at whether all have started."""
_NO_LINK = -1
_log = logging.getLogger(__name__)


class Hub:
    """One server of several fronts from start to end."""

    def __init__(self, config: EngineConfig) -> None:
        """Takes the port; raises a ConfigError where that, the keys or the model cannot be had."""
        server = config.server
        self._config = config
        self._startup = StartUp()
        keys = KeySource(server.api_key, None if server.keys is None else Path(server.keys))
        self._port = SharedPort(server)
        self._metrics = Metrics(config.name(), server.num_engines)
        self._engines = HubEngines(config, {} if keys.ring is None else keys.ring.weights(), self._metrics)
        self._board = Board.create(self._engines.folder / BOARD, server.api_server_count)
        self._usage = UsageTable.create(self._engines.folder / USAGE)
        self._fronts: Supervisor[FrontProcess] = Supervisor(
            self._new_front,
            server.api_server_count,
            step_timeout=server.step_timeout,
            outage_timeout=server.outage_timeout,
            on_lost=self._front_lost,
            kind="front",
        )
        self._stopping = asyncio.Event()
        self._lost_fronts = 0
        self._gone = FrontFigures()
        """What fronts that died had counted."""
        self._history = History(self._sample)
        self._adapters: dict[str, AdapterRef] = {}
        """LoRA adapters that were loaded while the server ran, by name."""

    async def serve(self) -> int:
        """Until a signal; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._tell_all, "reload")
        recording = loop.create_task(self._history.keep())
        try:
            await self._engines.start()
            await self._fronts.start()
            _log.info("%d fronts listen on %s while the engine loads", len(self._fronts.slots), self._port.url)
            await self._until_stopped()
            return await self._drained()
        finally:
            recording.cancel()
            await self._fronts.close()
            self._port.close()
            self._usage.close()
            await self._engines.close()

    async def _until_stopped(self) -> None:
        """Raises a ConfigError where the settings cannot start an engine or a front."""
        starting = asyncio.create_task(self._started())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self._startup.done("starting fronts and engines")
                _log.info("ready on %s, %s", self._port.url, self._startup.told())
            await stopping
        finally:
            for task in (starting, stopping):
                task.cancel()

    async def _started(self) -> None:
        engines = asyncio.create_task(self._engines.ready())
        try:
            while not (engines.done() and all(slot.client.is_ready for slot in self._fronts.slots)):
                for slot in self._fronts.slots:
                    if slot.client.start_failure is not None:
                        raise ConfigError(slot.client.start_failure)
                if engines.done():
                    engines.result()
                await asyncio.sleep(_LOOK_EVERY)
        finally:
            engines.cancel()

    def _stop(self) -> None:
        """The first signal drains the fronts, the second ends them."""
        self._stopping.set()
        self._tell_all("drain")  # one that does not serve yet does not hear it: `_drained` closes it

    def _tell_all(self, order: str) -> None:
        for slot in self._fronts.slots:
            slot.client.tell(order)

    async def _drained(self) -> int:
        """Wait until every front has finished its work; one that dies meanwhile is not replaced."""
        starting = [slot.client for slot in self._fronts.slots if not slot.client.is_ready]
        await self._fronts.retire()
        for front in starting:
            await front.close()
        fronts = [slot.client for slot in self._fronts.slots if slot.client not in starting]
        for front in fronts:
            await front.lost()
        codes = [CUT_OFF if front.code is None or front.code < 0 else front.code for front in fronts]
        return max(codes, default=DRAINED)

    # -- fronts ------------------------------------------------------------------------------------------------

    def _new_front(self, number: int) -> FrontProcess:
        settings = FrontSettings(
            self._engines.front_config(),
            number,
            self._port.socket(number).fileno(),
            _NO_LINK,
            str(self._engines.folder),
        )
        handlers: dict[str, Handler] = {
            "batches": self._ask_about_batches,
            "overview": self._overview,
            "history": self._told_history,
            "adapter_loaded": self._adapter_loaded,
            "adapter_unloaded": self._adapter_unloaded,
        }
        return FrontProcess(settings, handlers, self._config.server.step_timeout, self._front_ready)

    def _front_ready(self, front: FrontProcess) -> None:
        self._fronts.became_ready(front)
        for ref in self._adapters.values():  # those that were loaded before it came
            front.tell("adapter_loaded", ref)

    async def _adapter_loaded(self, given: msgspec.Raw) -> None:
        ref = msgspec.msgpack.decode(given, type=AdapterRef)
        self._adapters[ref.name] = ref
        await asyncio.gather(*(front.ask("adapter_loaded", ref) for front in self._live_fronts()))

    async def _adapter_unloaded(self, given: msgspec.Raw) -> None:
        """Every front takes no more requests for it, and says when its last has ended."""
        name = msgspec.msgpack.decode(given, type=str)
        self._adapters.pop(name, None)
        await asyncio.gather(*(front.ask("adapter_unloaded", name) for front in self._live_fronts()))

    def _live_fronts(self) -> list[FrontProcess]:
        return [slot.client for slot in self._fronts.slots if slot.client.is_ready]

    def _front_lost(self, slot: Slot[FrontProcess], cause: str) -> None:
        # what is wrong with the settings is told once, to whoever started the server
        if not self._fronts.tells_who_started(slot):
            _log.error("front %d is lost (%s), with its connections; another takes its place", slot.number, cause)
        self._lost_fronts += 1
        self._gone = merged([self._gone, slot.client.pulse.figures.retired()])
        self._board.clear(slot.number)
        self._usage.clear(slot.number)
        if slot.losses_in_a_row > 1:
            self._port.give_up(slot.number)

    async def _overview(self, given: msgspec.Raw) -> Overview:
        tenant = msgspec.msgpack.decode(given, type=str | None)
        fronts = [slot.client for slot in self._fronts.slots]
        overviews = await asyncio.gather(*(front.overview(tenant) for front in fronts))
        self._metrics.fronts(len(self._fronts.ready()), self._lost_fronts)
        return together(overviews, self._gone, self._metrics.engine_figures(), self._engines.restarts())

    async def _told_history(self, _: msgspec.Raw) -> list[Sample]:
        return self._history.samples

    def _sample(self, moment: float) -> Sample:
        """From what fronts told within the last second: nobody is asked for it."""
        fronts = self._fronts.ready()
        seen = FrontFigures(rates=rates.merged(front.pulse.figures.rates for front in fronts))
        # all hear the same of the engines, unless one is new or stuck
        told = [front for front in fronts if front.pulse.engines.num_blocks]
        engines = max(told, key=lambda front: front.heard).pulse.engines if told else EngineLoad()
        return sample_of(moment, self._metrics.snapshot(seen), engines)

    async def _ask_about_batches(self, question: msgspec.Raw) -> msgspec.Raw:
        try:
            async with asyncio.timeout(_PATIENCE):
                runner = self._fronts.slots[BATCHES_RUN_ON].client
                await runner.serving.wait()
                assert runner.peer is not None
                return await runner.peer.ask("batches", msgspec.Raw, question)
        except TimeoutError:
            raise Unavailable("the process that runs batches is being replaced; try again", retry_after=5.0) from None
