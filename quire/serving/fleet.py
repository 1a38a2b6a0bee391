"""Fleet: all engines of a server. Gives every request to one of them, and to another when that one is lost."""

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import zmq.asyncio

from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError, Unavailable
from quire.core.stats import EngineStats
from quire.core.status import Status
from quire.observe.metrics import Metrics
from quire.serving.journal import Entry, Journal
from quire.serving.messages import (
    ChildSettings,
    End,
    FromEngine,
    Hold,
    PromptNews,
    Report,
    Resume,
    SequenceNews,
    Started,
    StartFailed,
    Submit,
    ToEngine,
    Weights,
)
from quire.serving.quarantine import Quarantine
from quire.serving.replica import Replica
from quire.serving.routing import Routing

MOST_LOSSES = 8
"""Engines lost one after the other without one that lived for long: then starting more is pointless."""
_SETTLED_AFTER = 10.0
"""Seconds an engine must have lived for its loss to be the first in a row: one that dies on arrival is not healthy."""
_LOOK_EVERY = 0.05
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
"""Seconds before an engine that does not start is tried again, doubled each time up to the longest."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Slot:
    """A place for an engine; engines come and go in it."""

    replica: Replica
    restarts: int = 0
    losses_in_a_row: int = 0
    is_given_up: bool = False
    """It was lost so often in a row that it is not started again."""

    @property
    def state(self) -> str:
        """In a word."""
        if self.is_given_up:
            return "lost"
        return "ready" if self.replica.is_ready else "starting"


class Fleet:
    """Owns the engine processes and the journal of what they run. Lives on one event loop."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        seed: int,
        tenant_weights: dict[str, float] | None = None,
        metrics: Metrics,
        on_other: Callable[[Replica, FromEngine], None],
        on_report: Callable[[int, EngineStats], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """`on_other` is told what is not about requests: vectors, blocks, checks, profiles."""
        self.journal = Journal()
        self.slots: list[Slot] = []
        self.failure: str | None = None
        """Why no engine will ever be ready."""
        self._config = config
        self._seed = seed
        self._weights = tenant_weights or {}
        self._metrics = metrics
        self._on_other = on_other
        self._on_report = on_report
        self._on_lost = on_lost
        self._context = zmq.asyncio.Context()
        self.folder = tempfile.mkdtemp(prefix="quire-")
        """Of sockets and profiles; its mode is 0700, so nobody else reaches them."""
        self._epoch = 0
        self._routing = Routing()
        self._quarantine = Quarantine()
        self._ready = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every engine; returns before they are ready."""
        for number in range(self._config.server.replicas):
            self.slots.append(Slot(self._new_replica(number)))
        await asyncio.gather(*(slot.replica.start() for slot in self.slots))

    async def ready(self) -> Started:
        """Wait until an engine takes requests; raises ConfigError where none ever will."""
        await self._ready.wait()
        if self.failure is not None:
            raise ConfigError(self.failure)
        return next(slot.replica.started for slot in self.slots if slot.replica.started is not None)

    async def ready_again(self) -> None:
        """Wait until an engine takes requests, after one was lost."""
        while not self.is_ready and self.failure is None and not self._closing:
            await asyncio.sleep(_LOOK_EVERY)

    @property
    def is_ready(self) -> bool:
        return any(slot.replica.is_ready for slot in self.slots)

    @property
    def is_healthy(self) -> bool:
        """Whether engines make progress, or are on their way back."""
        timeout = self._config.server.step_timeout
        return self.failure is None and any(
            not slot.replica.is_ready or slot.replica.seconds_silent <= timeout for slot in self.slots
        )

    async def close(self) -> None:
        """End every engine; what is still live is lost."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(slot.replica.close() for slot in self.slots))
        for entry in self.journal.entries():
            self._lose(entry, "the server is shutting down")
        self._context.destroy(linger=0)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- requests ----------------------------------------------------------------------------------------------

    def submit(self, entry: Entry) -> None:
        """Take in a request; its listener hears of all that becomes of it."""
        if self.failure is not None:
            raise Unavailable(f"no engine can be started: {self.failure}")
        self.journal.open(entry)
        self._place(entry)

    def end(self, entry: Entry, index: int | None = None, status: Status = Status.ABORTED) -> None:
        """A sequence, or the whole request, is not wanted any more."""
        for each in list(entry.emitted) if index is None else [index]:
            entry.emitted.pop(each, None)
        self._send(entry, End(entry.request.id, index, status))
        self._forget_if_over(entry)

    def hold(self, entry: Entry) -> None:
        """Its reader is slow."""
        entry.is_held = True
        self._send(entry, Hold(entry.request.id))

    def resume(self, entry: Entry) -> None:
        entry.is_held = False
        self._send(entry, Resume(entry.request.id))

    def set_tenant_weights(self, weights: dict[str, float]) -> None:
        """In the engines that run or start now, and in those that come after them."""
        self._weights = weights
        for slot in self.slots:
            slot.replica.send(Weights(weights))

    def least_loaded(self) -> Replica:
        """For work that leaves nothing behind, such as vectors."""
        ready = [slot.replica for slot in self.slots if slot.replica.is_ready]
        if not ready:
            raise Unavailable(self.failure or "no engine is ready yet; try again in a moment")
        return min(ready, key=lambda replica: replica.stats.running + replica.stats.waiting)

    def _place(self, entry: Entry) -> None:
        """Give a request to an engine, or leave it for the first that becomes ready."""
        if self._quarantine.keeps_waiting(entry):
            entry.replica = -1
            return
        ready = [slot.replica for slot in self.slots if slot.replica.is_ready]
        entry.replica = -1
        if ready:
            chosen = self._routing.choose(entry.request, [replica.number for replica in ready], self.journal)
            entry.replica = chosen
            self._submit(entry)

    def _submit(self, entry: Entry) -> None:
        self._send(entry, Submit(entry.to_submit()))
        if entry.is_held:
            self._send(entry, Hold(entry.request.id))

    def _place_unplaced(self) -> None:
        for entry in self.journal.entries():
            if entry.replica < 0:
                self._place(entry)

    def _send(self, entry: Entry, message: ToEngine) -> None:
        if entry.replica >= 0:
            self.slots[entry.replica].replica.send(message)

    # -- what engines say --------------------------------------------------------------------------------------

    def _take(self, replica: Replica, message: FromEngine) -> None:
        if isinstance(message, Report):
            self._take_report(replica, message)
        elif isinstance(message, Started):
            self._take_started(replica, message)
        elif isinstance(message, StartFailed):
            if not self._ready.is_set():  # later it may be a passing lack of memory, and is tried again
                self._give_up(message.message)
        else:
            self._on_other(replica, message)

    def _take_report(self, replica: Replica, report: Report) -> None:
        for request_id in report.accepted:
            entry = self.journal.get(request_id)
            if entry is not None and not entry.is_accepted:
                entry.is_accepted = True
                entry.listener.accepted()
        for refusal in report.refused:
            entry = self.journal.get(refusal.request_id)
            if entry is not None:
                self.journal.close(entry)
                entry.listener.refused(refusal)
        for prompt in report.prompts:
            self._take_prompt(prompt)
        for news in report.sequences:
            self._take_news(news)
        if replica.seconds_ready > _SETTLED_AFTER:
            self.slots[replica.number].losses_in_a_row = 0
        self._metrics.engine(replica.number, report.stats)
        self._on_report(replica.number, report.stats)
        if self._quarantine.is_on and self._quarantine.cleared():
            self._place_unplaced()

    def _take_prompt(self, news: PromptNews) -> None:
        entry = self.journal.get(news.request_id)
        if entry is not None:
            entry.listener.prompt_news(news)

    def _take_news(self, news: SequenceNews) -> None:
        entry = self.journal.get(news.request_id)
        if entry is None or not entry.take(news):
            return
        self.journal.begin(entry)
        entry.listener.news(news)
        self._forget_if_over(entry)

    def _take_started(self, replica: Replica, started: Started) -> None:
        _log.info("engine %d is ready (%s)", replica.number, _phases(started))
        self._ready.set()
        self._place_unplaced()

    # -- what becomes of lost engines --------------------------------------------------------------------------

    def _lost(self, replica: Replica, cause: str) -> None:
        if self._closing or self.failure is not None:
            return
        slot = self.slots[replica.number]
        slot.restarts += 1
        slot.losses_in_a_row += 1
        orphans = self.journal.on_replica(replica.number)
        _log.error("engine %d is lost (%s); its %d requests go on elsewhere", replica.number, cause, len(orphans))
        self._metrics.engine_lost(replica.number, cause)
        self._on_lost(replica.number)
        self._routing.forget(replica.number)
        slot.replica = self._new_replica(replica.number)
        slot.is_given_up = slot.losses_in_a_row > MOST_LOSSES
        if slot.is_given_up and not self.is_ready:
            self._give_up(replica.start_failure or f"it was lost {slot.losses_in_a_row} times in a row: {cause}")
            return
        self._move(orphans)
        if slot.is_given_up:
            _log.error("engine %d does not come back; the others go on without it", replica.number)
            return
        task = asyncio.create_task(self._start_again(slot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _move(self, orphans: list[Entry]) -> None:
        for entry in orphans:
            entry.losses += 1
            entry.moves += 1
        culprit = self._quarantine.engine_lost(orphans)
        if culprit is not None:
            _log.error("request %s was alone with an engine that was lost, and fails", culprit.request.id)
            self._lose(culprit, "the engine is lost whenever it computes this request")
        for entry in orphans:
            if not entry.is_over:
                self._place(entry)

    async def _start_again(self, slot: Slot) -> None:
        if slot.losses_in_a_row > 1:
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (slot.losses_in_a_row - 2)))
        await slot.replica.start()

    def _give_up(self, why: str) -> None:
        self.failure = why
        for entry in self.journal.entries():
            self._lose(entry, f"no engine can be started: {why}")
        self._ready.set()

    def _lose(self, entry: Entry, message: str) -> None:
        entry.emitted.clear()
        self.journal.close(entry)
        entry.listener.lost(message)

    def _forget_if_over(self, entry: Entry) -> None:
        if entry.is_over:
            self.journal.close(entry)

    def _new_replica(self, number: int) -> Replica:
        self._epoch += 1
        address = f"ipc://{self.folder}/{self._epoch}"
        settings = ChildSettings(self._config, self._seed, f"{address}.in", f"{address}.out", number, self._weights)
        return Replica(
            settings,
            self._context,
            step_timeout=self._config.server.step_timeout,
            environment=_thread_settings(self._config.server.replicas),
            on_message=self._take,
            on_lost=self._lost,
        )


def _thread_settings(replicas: int) -> dict[str, str]:
    """How an engine's threads share the cores with other engines and with the server itself."""
    chosen: dict[str, str] = {}
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
        # By default a thread that waits for another spins for milliseconds, also when that one has no core to run on:
        # beside two busy processes on two cores 25 tokens a second instead of 45. Alone both reach the same.
        chosen["GOMP_SPINCOUNT"] = "20000"
    if replicas > 1 and "OMP_NUM_THREADS" not in os.environ:
        chosen["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // replicas))
    return chosen


def _phases(started: Started) -> str:
    return ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in started.seconds)
