"""Steps of the last stage on a CPU: they begin when they must, and no later than their blocks change hands."""

from typing import Any

import pytest

from quire.core.plan import StepPlan
from quire.core.result import StepResult
from quire.executor.last_stage import DeferredExecutor


class _Blocks:
    block_bytes = 8

    def __init__(self, ran: list[int]) -> None:
        self._ran = ran

    def buffer(self, count: int) -> memoryview:
        return memoryview(bytearray(count * self.block_bytes))

    def lock(self, memory: memoryview) -> None: ...

    def views(self, block: int) -> None: ...

    def read(self, blocks: Any, target: memoryview) -> None: ...

    def write(self, blocks: Any, source: memoryview, fence: Any) -> None: ...

    def fence(self) -> list[int]:
        return list(self._ran)


class _Step:
    def __init__(self, step: int) -> None:
        self._step = step

    def result(self) -> StepResult:
        return StepResult(step=self._step)


class _Worker:
    adapters = None

    def __init__(self) -> None:
        self.ran: list[int] = []

    def start(self, plan: StepPlan) -> _Step:
        if plan.rows == [13]:
            raise RuntimeError("row 13")
        self.ran.append(plan.step)
        return _Step(plan.step)

    def carried_blocks(self) -> _Blocks:
        return _Blocks(self.ran)


def _plan(step: int, *rows: int) -> StepPlan:
    return StepPlan(step=step, rows=list(rows), counts=[1] * len(rows))


def test_a_fence_is_behind_every_step_that_was_given() -> None:
    worker = _Worker()
    executor = DeferredExecutor(worker, 3)  # type: ignore[arg-type]
    first, released, third = (executor.execute(plan) for plan in (_plan(1, 0), _plan(2), _plan(3, 0)))
    assert worker.ran == []
    assert executor.carried_blocks().fence() == [1, 2, 3]
    later = executor.execute(_plan(4, 0))
    assert worker.ran == [1, 2, 3]
    assert [handle.result().step for handle in (first, third, later)] == [1, 3, 4]
    assert worker.ran == [1, 2, 3, 4]
    assert released is not None


def test_what_a_step_threw_is_told_to_whoever_asks_for_its_result() -> None:
    worker = _Worker()
    executor = DeferredExecutor(worker, 3)  # type: ignore[arg-type]
    first, bad, _ = (executor.execute(plan) for plan in (_plan(1, 0), _plan(2, 13), _plan(3, 0)))
    assert executor.carried_blocks().fence() == [1]
    assert first.result().step == 1
    with pytest.raises(RuntimeError, match="row 13"):
        bad.result()
