"""The worker inside the engine's own thread."""

from pathlib import Path

from quire.config.facts import DeviceFacts
from quire.config.resolved import Resolved
from quire.core.plan import StepPlan
from quire.core.result import StepResult
from quire.executor.base import Executor, StepHandle
from quire.worker.device import device_facts, this_device
from quire.worker.start import Progress, start_worker
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


def start_inline(path: Path, resolved: Resolved, *, seed: int = 0, progress: Progress | None = None) -> InlineExecutor:
    """An executor with the model at `path` on this machine's device."""
    return InlineExecutor(start_worker(path, resolved, device=this_device(), seed=seed, progress=progress))


def local_device_facts() -> DeviceFacts:
    """The facts of the device that `start_inline` would use."""
    return device_facts(this_device())
