"""EngineLoop: schedule, execute, update. The one loop that every way of using quire runs."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from quire.core.errors import OutOfDeviceMemory
from quire.core.plan import StepPlan
from quire.core.request import Request
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.engine.adapter_loads import AdapterLoads
from quire.engine.blame import Blame
from quire.engine.encoding_totals import EncodingTotals
from quire.engine.holds import Holds
from quire.engine.oom_backoff import OomBackoff
from quire.engine.prefix_disk import PrefixDisk
from quire.engine.preparing import Preparing
from quire.executor.base import Executor, SleepLevel, StepHandle
from quire.sampling.grammar.cache import GrammarCache
from quire.scheduler.base import StepScheduler
from quire.scheduler.intake import StepUpdate

_LAST_WRITES_SECONDS = 3.0
"""What an engine that ends may take to write the rest of its prefixes to disk; who ends it waits a little longer."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StepFigures:
    """The last step that was read."""

    step: int = 0
    tokens: int = 0
    sequences: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _StartedStep:
    plan: StepPlan
    handle: StepHandle


class EngineLoop:
    """Owns a scheduler and an executor, and nothing about text."""

    def __init__(
        self,
        scheduler: StepScheduler,
        executor: Executor,
        grammars: GrammarCache | None = None,
        disk: PrefixDisk | None = None,
    ) -> None:
        """`grammars` is the worker's too; without it there is no structured output. `disk` keeps prefixes."""
        self._scheduler = scheduler
        self._executor = executor
        self._in_flight: deque[_StartedStep] = deque()
        self._most_in_flight = executor.max_in_flight
        self.holds = Holds(scheduler)
        self._blame = Blame(scheduler, self.holds)
        self._oom_backoff = OomBackoff(scheduler)
        self.adapters = AdapterLoads(scheduler.adapters, executor)
        self._preparing = Preparing(scheduler, self.holds, executor, grammars, self.adapters)
        self.disk = disk
        self.sleep_level: SleepLevel | Literal[0] = 0
        """0 while it is awake."""
        self.num_wakes = 0
        self.wake_seconds = 0.0
        """That the last waking took."""
        self.num_failed_steps = 0
        self.num_out_of_memory = 0
        self.figures = StepFigures()
        self.encoding = EncodingTotals()

    @property
    def scheduler(self) -> StepScheduler:
        return self._scheduler

    @property
    def executor(self) -> Executor:
        return self._executor

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    @property
    def is_preparing(self) -> bool:
        """Whether requests wait for their grammars, or for code that runs them."""
        return self._preparing.is_busy

    def add(self, request: Request) -> list[Sequence]:
        """Accept a request; one that comes while the engine sleeps wakes it."""
        if self.sleep_level:
            self.wake_up()
        try:
            needed = self._preparing.begin(request)
            sequences = self._scheduler.add(request)
        except BaseException:
            self.adapters.forget(request.id)
            raise
        reading = None if self.disk is None else self.disk.begin(sequences[0])
        self._preparing.wait_for(request, needed if reading is None else [*needed, reading])
        self._blame.arrived(request.id)
        return sequences

    def wait_for_kv(self, begin: "Callable[[Request], Future[None] | None]") -> None:
        """Requests wait outside steps for what `begin` says: KV that is on its way from other engines."""
        self._preparing.kv = begin

    def abort(self, request_id: str) -> None:
        self._scheduler.abort(request_id)

    def end(self, seq: Sequence, status: Status) -> None:
        self._scheduler.end(seq, status)

    def fork(self, seq: Sequence, last_token: int) -> Sequence:
        return self._scheduler.fork(seq, last_token)

    def step(self) -> tuple[StepUpdate, list[Sequence]]:
        """Plan and start one step, read the oldest that is due; returns new tokens and sequences that ended."""
        self.adapters.advance()
        if self.disk is not None:
            self._copy_prefixes(self.disk)
        self._preparing.resume()
        plan = self._scheduler.schedule(time.monotonic())
        due, update = plan, StepUpdate([], [])
        try:
            if not plan.is_empty:
                handle = self._executor.execute(plan)
                if plan.computes:
                    self._in_flight.append(_StartedStep(plan, handle))
            if self._in_flight and (len(self._in_flight) >= self._most_in_flight or not plan.computes):
                started = self._in_flight.popleft()
                due = started.plan
                update = self._read(started)
        except Exception as error:  # whatever a step raises is the fault of a request in it, or of the device
            update = self._step_threw(due, error)
        return update, self.take_finished()

    def take_finished(self) -> list[Sequence]:
        """Sequences that ended since the last call, each exactly once; what was kept for them is free."""
        finished = self._scheduler.take_finished()
        for seq in finished:
            self.holds.forget(seq.request.id)
            if not self._scheduler.sequences_of(seq.request.id):
                self.adapters.forget(seq.request.id)
        return finished

    def warm_up(self) -> bool:
        """Do one piece of the warm-up, while there are no requests; False when nothing is left."""
        if self.sleep_level:
            return False
        try:
            return self._executor.warm_up()
        except Exception:  # a request that needs it will fail by itself, and its client will be told
            _log.warning("warm-up failed; requests compile and capture what they need", exc_info=True)
            self._executor.reset()
            return False

    def sleep(self, level: SleepLevel) -> None:
        """Give memory back until `wake_up`, or until a request comes. There must be none now.

        Prefixes that are not on a disk are forgotten.
        """
        if self.has_work:
            raise RuntimeError("requests are live; they end before the engine sleeps")
        if level <= self.sleep_level:
            return
        _log.info("the engine goes to sleep, level %d", level)
        if self.disk is not None:
            self.disk.settle(self.figures.step, _LAST_WRITES_SECONDS)
            self.disk.forget_device()
        for kv in self._scheduler.kv_of_ranks:
            kv.forget_all()
        self.adapters.forget_all()
        self._executor.sleep(level)
        self.sleep_level = level

    def wake_up(self) -> None:
        """Be as after the start."""
        if not self.sleep_level:
            return
        begun = time.monotonic()
        self._executor.wake_up()
        self.wake_seconds = time.monotonic() - begun
        self.num_wakes += 1
        _log.info("the engine woke up from level %d in %.2f s", self.sleep_level, self.wake_seconds)
        self.sleep_level = 0

    @property
    def is_copying(self) -> bool:
        """Whether prefixes are on their way to or from a disk."""
        return self.disk is not None and self.disk.is_busy

    def tend(self) -> None:
        """What goes on beside steps, while there are none."""
        if self.disk is not None:
            self.disk.advance(self.figures.step)

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Within, every step is read before the next is planned, and yields one token of a sequence.

        The engine must have no work when it begins.
        """
        self._most_in_flight = 1
        self._scheduler.drafts_are_off = True
        try:
            yield
        finally:
            self._most_in_flight = self._executor.max_in_flight
            self._scheduler.drafts_are_off = False

    def close(self) -> None:
        if self.disk is not None:
            self.disk.settle(self.figures.step, _LAST_WRITES_SECONDS)
            self.disk.forget_device()
            self.disk.close()
            self.disk = None
        self._executor.close()

    def _copy_prefixes(self, disk: PrefixDisk) -> None:
        disk.advance(self.figures.step)
        for seq, reading in disk.begin_late():
            self._preparing.wait_for(seq.request, [reading])

    def _read(self, started: _StartedStep) -> StepUpdate:
        result = started.handle.result()
        update = self._scheduler.update(result)
        self._blame.stepped()
        self._oom_backoff.stepped()
        tokens, rows = _size_of(started.plan)
        self.figures = StepFigures(started.plan.step, tokens, rows, result.elapsed)
        if result.encoder is not None:
            self.encoding.add(result.encoder)
        if self.disk is not None:
            self.disk.computed(tokens, result.elapsed)
        return update

    def _step_threw(self, plan: StepPlan, error: Exception) -> StepUpdate:
        """Roll the step back and find the request to blame; raises if the device itself is gone.

        An earlier step is read first: what it computed counts, or, if it threw too, it is rolled back.
        """
        update = StepUpdate([], [])
        if self._in_flight and self._in_flight[0].plan.step < plan.step:
            started = self._in_flight.popleft()
            try:
                update = self._read(started)
            except Exception as earlier:
                plan, error = started.plan, earlier
        self.num_failed_steps += 1
        sequences = self._scheduler.rollback(plan.step)
        self._in_flight.clear()
        if isinstance(error, OutOfDeviceMemory):
            _log.warning("step %d ran out of device memory: %s", plan.step, error)
        else:
            _log.error("step %d with %d sequences threw", plan.step, len(sequences), exc_info=error)
        self._executor.reset()
        if isinstance(error, OutOfDeviceMemory):
            self._ran_out(plan, sequences)
            return update
        for request_id in self._blame.step_threw(sequences):
            _log.error("request %s is to blame and fails: %s", request_id, error)
            self._scheduler.abort(request_id, Status.FAILED)
        return update

    def _ran_out(self, plan: StepPlan, sequences: list[Sequence]) -> None:
        """Continue with smaller steps; a request that does not fit even alone ends."""
        self.num_out_of_memory += 1
        tokens, requests = _size_of(plan)[0], len({seq.request.id for seq in sequences})
        is_someone = self._oom_backoff.ran_out(tokens, requests)
        _log.warning(
            "step %d had %d tokens of %d requests and was rolled back; the next steps have at most %d tokens",
            *(plan.step, tokens, requests, self._oom_backoff.num_tokens),
        )
        for request_id in self._blame.step_threw(sequences) if is_someone else ():
            why = (
                f"the device ran out of memory for it alone, {tokens} tokens at a time; start with a lower "
                "--gpu-memory-utilization, which leaves more beside the KV cache, or a lower --max-num-batched-tokens"
            )
            _log.error("request %s fails: %s", request_id, why)
            for seq in self._scheduler.sequences_of(request_id):
                seq.failure, seq.is_blameless = why, True
            self._scheduler.abort(request_id, Status.FAILED)
            self._oom_backoff.relieved()


def _size_of(plan: StepPlan) -> tuple[int, int]:
    """Tokens and sequences of a step, on all ranks."""
    if not plan.others:
        return plan.num_tokens, len(plan.rows)
    plans = plan.of_all()
    return sum(each.num_tokens for each in plans), sum(len(each.rows) for each in plans)
