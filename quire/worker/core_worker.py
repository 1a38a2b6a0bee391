"""CoreWorker: a worker on the native core alone, which is ready before torch could be imported. No torch.

It runs what most requests ask for. The first that asks for more (a grammar, a vector, logprobs of its prompt) makes it
import torch and build the whole worker, which goes on with the same memory.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from quire.config.resolved import KVLayout
from quire.core.carried_blocks import CarriedBlocks
from quire.core.expert_load import ExpertLoad
from quire.core.plan import StepPlan
from quire.core.request import Request
from quire.core.result import StepResult
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.ops.cpu.packed_file import PackedFile
from quire.sampling.core_sampler import CoreSampler
from quire.worker.core_memory import CoreMemory
from quire.worker.core_model import CoreModel
from quire.worker.core_steps import CoreStepDone, CoreSteps, core_can_run
from quire.worker.dummy import dummy_sequence
from quire.worker.speculative.core_drafting import CoreDrafting

if TYPE_CHECKING:
    from quire.worker.adapter_store import AdapterStore
    from quire.worker.running_step import RunningStep
    from quire.worker.worker import Worker

_log = logging.getLogger(__name__)


class CoreWorker:
    """Runs plans one after the other, in the order they come."""

    adapters: "AdapterStore | None" = None
    """It has none."""

    def __init__(
        self,
        model: CoreModel,
        weights: PackedFile,
        sampler: CoreSampler,
        memory: CoreMemory,
        layout: KVLayout,
        whole: Callable[[], "Worker"],
        drafting: CoreDrafting | None = None,
    ) -> None:
        """`weights` are the model's; `whole` builds the worker that goes on with the same memory; `drafting` is
        speculative decoding."""
        self._model = model
        self._weights = weights
        self._sampler = sampler
        self._memory = memory
        self._layout = layout
        self._drafting = drafting
        self._steps = CoreSteps(model, sampler, memory, layout.block_size, drafting)
        self._is_warm = False
        self._build = whole
        self._whole: Worker | None = None
        self._importing: Future[None] | None = None

    def start(self, plan: StepPlan) -> "CoreStepDone | RunningStep":
        """Run a step."""
        if self._whole is None and not all(core_can_run(admission) for admission in plan.admitted):
            self._make_whole()
        return CoreStepDone(self._run(plan)) if self._whole is None else self._whole.start(plan)

    def prepare(self, request: Request) -> "Future[None] | None":
        """Begin to import torch where a request needs it: other requests go on meanwhile."""
        if self._whole is not None or core_can_run(request):
            return None
        if self._importing is None:
            self._importing = Future()
            Thread(target=_import_whole, args=(self._importing,), name="quire-import", daemon=True).start()
        return None if self._importing.done() else self._importing

    def warm_up(self) -> bool:
        """Compute a token that nobody asked for: that maps the weights, for which the first prompt would wait."""
        if self._whole is None and not self._is_warm:
            self._is_warm = True
            sequence = dummy_sequence(0, 1, self._layout)
            self._run(StepPlan(step=0, admitted=[sequence], rows=[0], counts=[1], num_sampling=1))
            if self._drafting is not None:
                self._drafting.reset()  # nobody has said that token
            self._run(StepPlan(step=0, released=[0]))
        return False

    def sleep(self) -> None:
        """Give blocks back, and the pages of weights, which lie in a file: they come when they are used again."""
        if self._whole is not None:
            self._whole.sleep()
        self._memory.give_back()
        self._weights.give_back_pages()

    def wake_up(self) -> None:
        """Have the weights mapped before a request waits for them."""
        if self._whole is not None:
            self._whole.wake_up()
        self._is_warm = False
        self.warm_up()

    def expert_load(self) -> ExpertLoad | None:
        """As `Worker.expert_load`: what it computed, and what the whole worker did after it."""
        own = self._model.expert_load()
        more = None if self._whole is None else self._whole.expert_load()
        return own if own is None or more is None else ExpertLoad(own.layers, own.counts + more.counts)

    def expert_cache(self) -> None:
        """Experts are mapped from a file, and nobody counts its pages."""

    def carried_blocks(self) -> CarriedBlocks:
        """Its KV blocks, for whoever carries them elsewhere; the whole worker goes on with the same."""
        return HostBlocks(self._memory.kv, self._layout)

    def reset(self) -> None:
        """Forget every row."""
        self._sampler.reset()
        self._memory.admitted.clear()
        if self._drafting is not None:
            self._drafting.reset()
        if self._whole is not None:
            self._whole.reset()

    def _make_whole(self) -> "Worker":
        if self._whole is None:
            begun = time.monotonic()
            self._whole = self._build()
            seconds = time.monotonic() - begun
            _log.info("the model was built from its modules in %.2f s, as a request needs them", seconds)
        return self._whole

    def _run(self, plan: StepPlan) -> StepResult:
        begun = time.perf_counter()
        self._apply_changes(plan)
        if not plan.rows:
            return StepResult(step=plan.step, elapsed=time.perf_counter() - begun)
        return self._steps.run(plan, begun)

    def _apply_changes(self, plan: StepPlan) -> None:
        assert not [*plan.swap_out, *plan.swap_in], "there is no CPU tier"
        memory = self._memory
        memory.copy(plan.copies)
        for row in plan.released:
            self._sampler.release(row)
            memory.admitted.pop(row, None)
            if self._drafting is not None:
                self._drafting.release(row)
        for admission in plan.admitted:
            memory.admit(admission)
            self._sampler.admit(admission)
            if self._drafting is not None:
                self._drafting.admit(admission)
        memory.change(plan.table_deltas)


def _import_whole(imported: "Future[None]") -> None:
    try:
        import_module("quire.worker.start")
    except BaseException as error:  # whoever waits is to know, whatever it was
        imported.set_exception(error)
    else:
        imported.set_result(None)
