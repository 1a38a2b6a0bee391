"""PlainSteps: steps of a whole worker on a CPU that need nothing of it but the native core.

Putting a step together from tensors takes a millisecond, which is a fifth of a small model's step. So steps without
drafts, whose rows the core's own sampler draws, go the way of the worker that has no torch.
"""

import time

import torch
from msgspec import structs

from quire.core.plan import Admission, StepPlan
from quire.core.result import StepResult
from quire.sampling.core_sampler import CoreSampler
from quire.worker.core_memory import CoreMemory
from quire.worker.core_model import CoreStep, Floats
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
        """None, and nothing is done: the step is not such a one."""
        begun = time.perf_counter()
        if plan.num_drafts or plan.num_wanted or not self._rows.issuperset(plan.rows):
            return None
        steps = self._linked()
        if steps is None:
            return None
        if self._drafting is None:
            return steps.run(plan, begun)
        self._drafting.skip(plan)
        self._memory.ready[plan.rows[: plan.num_sampling]] = 0
        return structs.replace(steps.run(plan, begun), num_proposed=[0] * plan.num_sampling)

    def _linked(self) -> CoreSteps | None:
        """None until the model has been recorded, which its first step does."""
        if self._steps is None:
            model = self._recorded.core_model()
            if model is not None:
                keep = None if self._drafting is None or not self._drafting.keeps_features else self._keep
                self._steps = CoreSteps(model, self._sampler, self._memory, self._block_size, keep=keep)
        return self._steps

    def _keep(self, step: CoreStep, hidden: Floats, tapped: list[Floats]) -> None:
        assert self._drafting is not None, "nobody reads features"
        slots = [torch.from_numpy(each) for each in step.slots]
        taps = [torch.from_numpy(each) for each in tapped]
        self._drafting.keep(slots, torch.from_numpy(hidden), taps)
