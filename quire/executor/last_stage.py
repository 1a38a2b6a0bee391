"""The worker of a pipeline's last stage, which is in the engine's own process: several steps are in flight, so that no
stage waits for the host."""

from collections import deque
from typing import TYPE_CHECKING

from quire.core.plan import StepPlan
from quire.core.result import StepResult
from quire.executor.base import SleepLevel, StepHandle
from quire.executor.inline import InlineExecutor
from quire.worker.device import may_have_gpu, this_device

if TYPE_CHECKING:
    from quire.executor.inline import AnyWorker


def last_stage(worker: "AnyWorker", stages: int) -> InlineExecutor:
    """An executor of it: of as many steps as there are stages each stage computes one, and one more is planned."""
    if may_have_gpu() and this_device().type == "cuda":
        return InlineExecutor(worker, stages + 1)
    return DeferredExecutor(worker, stages + 1)


class DeferredExecutor(InlineExecutor):
    """On a CPU a step takes the engine's thread for as long as it runs. It begins when its result is asked for: by then
    other stages have the plans of later steps, and compute these meanwhile.
    """

    def __init__(self, worker: "AnyWorker", max_in_flight: int) -> None:
        super().__init__(worker, max_in_flight)
        self._waiting: deque[StepPlan] = deque()

    def execute(self, plan: StepPlan) -> StepHandle:
        self._waiting.append(plan)
        return _Deferred(self, plan.step)

    def run(self, step: int) -> StepResult:
        """Compute everything up to a step that waits, and return its result."""
        while True:
            plan = self._waiting.popleft()
            result = super().execute(plan).result()
            if plan.step == step:
                return result

    def sleep(self, level: SleepLevel) -> None:
        while self._waiting:  # of steps that compute nothing, nobody asks for results
            super().execute(self._waiting.popleft()).result()
        super().sleep(level)

    def close(self) -> None:
        self._waiting.clear()
        super().close()


class _Deferred(StepHandle):
    def __init__(self, executor: DeferredExecutor, step: int) -> None:
        self._executor = executor
        self._step = step

    def result(self) -> StepResult:
        return self._executor.run(self._step)
