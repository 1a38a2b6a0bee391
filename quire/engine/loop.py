"""EngineLoop: schedule, execute, update. The one loop that every way of using quire runs."""

import time
from collections import deque

from quire.core.request import Request
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.executor.base import Executor, StepHandle
from quire.scheduler.intake import StepUpdate
from quire.scheduler.scheduler import Scheduler


class EngineLoop:
    """Owns a scheduler and an executor, and nothing about text."""

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._in_flight: deque[StepHandle] = deque()

    @property
    def scheduler(self) -> Scheduler:
        return self._scheduler

    @property
    def executor(self) -> Executor:
        return self._executor

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def add(self, request: Request) -> list[Sequence]:
        return self._scheduler.add(request)

    def abort(self, request_id: str) -> None:
        self._scheduler.abort(request_id)

    def end(self, seq: Sequence, status: Status) -> None:
        self._scheduler.end(seq, status)

    def fork(self, seq: Sequence, last_token: int) -> Sequence:
        return self._scheduler.fork(seq, last_token)

    def step(self) -> tuple[StepUpdate, list[Sequence]]:
        """Plan and start one step, read the oldest that is due; returns new tokens and sequences that ended."""
        plan = self._scheduler.schedule(time.monotonic())
        if not plan.is_empty:
            handle = self._executor.execute(plan)
            if plan.rows:
                self._in_flight.append(handle)
        update = StepUpdate([], [])
        if self._in_flight and (len(self._in_flight) >= self._executor.max_in_flight or not plan.rows):
            update = self._scheduler.update(self._in_flight.popleft().result())
        return update, self._scheduler.take_finished()

    def close(self) -> None:
        self._executor.close()
