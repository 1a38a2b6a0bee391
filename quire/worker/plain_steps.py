"""PlainSteps: steps of a whole worker on a CPU that need nothing of it but the native core.

Putting a step together from tensors takes a millisecond, which is a fifth of a small model's step. So steps without
drafts, whose rows the core's own sampler draws, go the way of the worker that has no torch.
"""

import time

from quire.core.plan import Admission, StepPlan
from quire.core.result import StepResult
from quire.sampling.core_sampler import CoreSampler
from quire.worker.core_memory import CoreMemory
from quire.worker.core_steps import CoreSteps, core_can_run
from quire.worker.recorded import RecordedModel
from quire.worker.speculative.drafting import Drafting


class PlainSteps:
    """Of one worker, which keeps rows and blocks in `memory`."""

    def __init__(
        self,
        recorded: RecordedModel,
        sampler: CoreSampler,
        memory: CoreMemory,
        block_size: int,
        drafting: Drafting | None,
    ) -> None:
        self._recorded = recorded
        self._sampler = sampler
        self._memory = memory
        self._block_size = block_size
        self._drafting = drafting
        self._steps: CoreSteps | None = None
        self._may_be_ready = True
        """Whether a row may have drafts."""
        self._rows: set[int] = set()
        """Those that the core's sampler draws."""

    def admit(self, admission: Admission) -> None:
        if core_can_run(admission):
            self._rows.add(admission.row)
            self._sampler.admit(admission)

    def release(self, row: int) -> None:
        self._rows.discard(row)
        self._sampler.release(row)

    def reset(self) -> None:
        self._rows.clear()
        self._sampler.reset()

    def run(self, plan: StepPlan) -> StepResult | None:
        """A step before which sequences neither come nor go, or that was done. None, and nothing is done: the step is
        not such a one."""
        begun = time.perf_counter()
        is_plain = plan.rows and not plan.num_drafts and not plan.num_wanted and self._rows.issuperset(plan.rows)
        steps = self._linked() if is_plain else None
        if steps is None:
            self._may_be_ready = True
            return None
        self._memory.change(plan.table_deltas)
        if self._drafting is None:
            return steps.run(plan, begun)
        if self._may_be_ready:  # drafts that nobody has verified
            self._memory.ready.fill(0)
            self._may_be_ready = False
        self._drafting.skip(plan)
        return steps.run(plan, begun, num_proposed=[0] * plan.num_sampling)

    def _linked(self) -> CoreSteps | None:
        """None until the model has been recorded, which its first step does."""
        if self._steps is None:
            model = self._recorded.core_model()
            if model is not None:
                keep = None if self._drafting is None else self._drafting.keep_later
                self._steps = CoreSteps(model, self._sampler, self._memory, self._block_size, keep=keep)
        return self._steps
