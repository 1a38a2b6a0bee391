"""The worker inside the engine's own thread."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.config.facts import DeviceFacts
from quire.config.resolved import Resolved
from quire.core.adapter import AdapterRef
from quire.core.carried_blocks import CarriedBlocks
from quire.core.plan import StepPlan
from quire.core.request import Request
from quire.core.result import StepResult
from quire.executor.base import Executor, HostedAdapter, SleepLevel, StepHandle
from quire.observe.start_clock import StartClock
from quire.worker.cpu_core import start_core
from quire.worker.device import local_facts, local_memory, may_have_gpu, this_device
from quire.worker.freed_memory import give_back_freed
from quire.worker.out_of_memory import telling_out_of_memory
from quire.worker.start_core_worker import start_core_worker

if TYPE_CHECKING:
    from quire.core.expert_load import CacheCounts, ExpertLoad
    from quire.worker.adapter_store import AdapterStore
    from quire.worker.core_steps import CoreStepDone
    from quire.worker.core_worker import CoreWorker
    from quire.worker.pooling_worker import PoolingWorker
    from quire.worker.running_step import RunningStep
    from quire.worker.start import Grammars
    from quire.worker.start_model import Progress
    from quire.worker.worker import Worker

    AnyWorker = Worker | CoreWorker | PoolingWorker


class _Started(StepHandle):
    def __init__(self, step: "RunningStep | CoreStepDone") -> None:
        self._step = step

    def result(self) -> StepResult:
        return telling_out_of_memory(self._step.result)


class InlineExecutor(Executor):
    """Gives every step to the device where it is asked for it. A GPU runs one while the next is planned; on a CPU there
    is nothing to overlap with.
    """

    def __init__(
        self,
        worker: "AnyWorker",
        max_in_flight: int = 1,
        restart: "Callable[[], AnyWorker] | None" = None,
        device_plugin: str | None = None,
    ) -> None:
        """`restart` makes such a worker again, for one that sleeps so deeply that nothing of it is left; the worker's
        device is one of `device_plugin`, if not one of quire's own."""
        self._device_plugin = device_plugin
        self._worker: AnyWorker | None = worker
        self._restart = restart
        self.max_in_flight = max_in_flight

    def execute(self, plan: StepPlan) -> StepHandle:
        assert self._worker is not None, "the executor is closed"
        worker = self._worker
        return _Started(telling_out_of_memory(lambda: worker.start(plan)))

    def prepare(self, request: Request) -> "Future[None] | None":
        assert self._worker is not None, "the executor is closed"
        return self._worker.prepare(request)

    def fetch_adapter(self, ref: AdapterRef) -> "Future[Any]":
        return self._adapters.fetch(ref)

    def place_adapter(self, hosted: HostedAdapter, slot: int, pages: list[int]) -> "Future[None]":
        return self._adapters.place(hosted, slot, pages)

    def hosted_adapters(self) -> int:
        return 0 if self._worker is None or self._worker.adapters is None else self._worker.adapters.num_hosted

    def hosted_adapter_keys(self) -> list[str]:
        return [] if self._worker is None or self._worker.adapters is None else self._worker.adapters.hosted_keys()

    @property
    def _adapters(self) -> "AdapterStore":
        assert self._worker is not None, "the executor is closed"
        assert self._worker.adapters is not None, "the worker was started without adapters"
        return self._worker.adapters

    def expert_load(self) -> "ExpertLoad | None":
        return None if self._worker is None else self._worker.expert_load()

    def expert_cache(self) -> "CacheCounts | None":
        return None if self._worker is None else self._worker.expert_cache()

    def carried_blocks(self, num_heads: int = 1) -> CarriedBlocks:
        assert self._worker is not None, "the executor is closed"
        return self._worker.carried_blocks()

    def warm_up(self) -> bool:
        assert self._worker is not None, "the executor is closed"
        return telling_out_of_memory(self._worker.warm_up)

    def sleep(self, level: SleepLevel) -> None:
        if level == 1:
            assert self._worker is not None, "it sleeps more deeply already"
            self._worker.sleep()
            return
        assert self._restart is not None, "this worker cannot be made again"
        self._drop_worker()
        give_back_freed()

    def wake_up(self) -> None:
        if self._worker is not None:
            telling_out_of_memory(self._worker.wake_up)
            return
        assert self._restart is not None, "this worker cannot be made again"
        self._worker = telling_out_of_memory(self._restart)

    def device_memory(self) -> tuple[int, int]:
        return local_memory(self._device_plugin)

    def reset(self) -> None:
        assert self._worker is not None, "the executor is closed"
        self._worker.reset()

    def close(self) -> None:
        if self._worker is not None:
            self._drop_worker()
            if may_have_gpu():  # a second engine of this process finds the device empty; a host's memory can wait
                give_back_freed()

    def _drop_worker(self) -> None:
        if self._worker is not None and self._worker.adapters is not None:
            self._worker.adapters.close()
        self._worker = None


def start_inline(
    path: Path,
    resolved: Resolved,
    *,
    seed: int = 0,
    in_background: bool = False,
    progress: "Progress | None" = None,
    grammars: "Grammars | None" = None,
    clock: StartClock | None = None,
) -> InlineExecutor:
    """An executor with the model at `path` on this machine's device; `grammars` are those of structured output.

    `clock` is told what took how long.
    """

    def make(clock: StartClock, progress: "Progress | None" = None, *, in_background: bool = False) -> "AnyWorker":
        core = start_core(path, resolved) if resolved.cpu_core else None
        if core is not None:
            core_worker = start_core_worker(path, resolved, core, seed=seed, grammars=grammars)
            if core_worker is not None:
                clock.done("weights and memory")
                return core_worker
        from quire.worker.start import start_worker

        clock.done("importing torch")
        return start_worker(
            path,
            resolved,
            device=this_device(resolved.device_plugin),
            seed=seed,
            in_background=in_background,
            progress=progress,
            grammars=grammars,
            clock=clock,
            core=core,
        )

    worker = make(clock or StartClock(), progress, in_background=in_background)
    return inline(worker, lambda: make(StartClock()), resolved.device_plugin)


def start_inline_pooling(
    path: Path, resolved: Resolved, progress: "Progress | None" = None, clock: StartClock | None = None
) -> InlineExecutor:
    """An executor with the model at `path`, which only reads, on this machine's device."""
    from quire.worker.start_pooling import start_pooling_worker

    def make(progress: "Progress | None" = None) -> "AnyWorker":
        return start_pooling_worker(path, resolved, device=this_device(resolved.device_plugin), progress=progress)

    (clock or StartClock()).done("importing torch")
    return inline(make(progress), make, resolved.device_plugin)


def inline(
    worker: "AnyWorker", restart: "Callable[[], AnyWorker] | None" = None, device_plugin: str | None = None
) -> InlineExecutor:
    """An executor of a worker that is there, and that can be made again."""
    has_gpu = device_plugin is None and may_have_gpu() and this_device().type == "cuda"
    return InlineExecutor(worker, 2 if has_gpu else 1, restart, device_plugin)


def local_device_facts(device_plugin: str | None = None) -> DeviceFacts:
    """The facts of the device that `start_inline` would use."""
    return local_facts(device_plugin)
