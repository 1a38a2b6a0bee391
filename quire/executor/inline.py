"""The worker inside the engine's own thread."""

from quire.core.plan import StepPlan
from quire.core.result import StepResult
from quire.executor.base import Executor, StepHandle
from quire.worker.worker import Worker


class _Done(StepHandle):
    def __init__(self, result: StepResult) -> None:
        self._result = result

    def result(self) -> StepResult:
        return self._result


class InlineExecutor(Executor):
    """Runs every step where it is asked for it. On a CPU there is nothing to overlap with."""

    max_in_flight = 1

    def __init__(self, worker: Worker) -> None:
        self._worker: Worker | None = worker

    def execute(self, plan: StepPlan) -> StepHandle:
        assert self._worker is not None, "the executor is closed"
        return _Done(self._worker.execute(plan))

    def close(self) -> None:
        self._worker = None
