"""The worker of a pipeline's last stage, which is in the engine's own process: several steps are in flight, so that no
stage waits for the host."""

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from quire.core.carried_blocks import CarriedBlocks
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
        self._over: dict[int, Future[StepResult]] = {}
        """Steps that ran before anyone asked for their results."""

    def execute(self, plan: StepPlan) -> StepHandle:
        self._waiting.append(plan)
        return _Deferred(self, plan.step)

    def run(self, step: int) -> StepResult:
        """Compute everything up to a step that waits, and return its result."""
        if step in self._over:
            return self._over.pop(step).result()
        while True:
            plan = self._waiting.popleft()
            result = super().execute(plan).result()
            if plan.step == step:
                return result

    def run_all(self) -> bool:
        """Compute every step that waits, up to one that throws; who asks for its result is told. Returns whether none
        did."""
        while self._waiting:
            plan = self._waiting.popleft()
            if not plan.computes:  # of which nobody asks for a result
                super().execute(plan).result()
                continue
            outcome = self._over[plan.step] = Future()
            try:
                outcome.set_result(super().execute(plan).result())
            except Exception as error:  # raised again where the result is asked for
                outcome.set_exception(error)
                return False
        return True

    def carried_blocks(self, num_heads: int = 1) -> CarriedBlocks:
        return _BlocksBehindSteps(super().carried_blocks(num_heads), self)

    def sleep(self, level: SleepLevel) -> None:
        self.run_all()
        super().sleep(level)

    def close(self) -> None:
        self._waiting.clear()
        super().close()


class _BlocksBehindSteps:
    """Its blocks, for whoever carries them: a CarriedBlocks. What was given to the executor may not have begun yet, and
    still touch blocks that have changed hands."""

    def __init__(self, blocks: CarriedBlocks, executor: DeferredExecutor) -> None:
        self.block_bytes = blocks.block_bytes
        self.buffer, self.lock = blocks.buffer, blocks.lock
        self.read, self.write = blocks.read, blocks.write
        self._fence, self._executor = blocks.fence, executor

    def fence(self) -> Any:
        self._executor.run_all()
        return self._fence()


class _Deferred(StepHandle):
    def __init__(self, executor: DeferredExecutor, step: int) -> None:
        self._executor = executor
        self._step = step

    def result(self) -> StepResult:
        return self._executor.run(self._step)
