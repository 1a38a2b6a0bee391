"""PlainSteps: steps of a whole worker on a CPU that need nothing of it but the native core.

Putting a step together from tensors takes a millisecond, which is a fifth of a small model's step. So steps without
drafts, whose rows the core's own sampler draws, go the way of the worker that has no torch.
"""

import time

import numpy as np
from numpy.typing import NDArray

from quire.core.plan import Admission, StepPlan
from quire.core.result import StepResult
from quire.ops.adjustments import OUTPUT_UNIT
from quire.sampling.core_sampler import CoreSampler
from quire.sampling.row_adjustments import RowAdjustments
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
        adjustments: RowAdjustments,
    ) -> None:
        """`adjustments` are those of steps that go another way: the tokens drawn here are counted there."""
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
        self._adjustments = adjustments
        self._counts: dict[int, NDArray[np.int32]] = {}
        """By row that has penalties: how often it has each token, where the other steps look."""

    def admit(self, admission: Admission) -> None:
        if core_can_run(admission):
            self._rows.add(admission.row)
            self._sampler.admit(admission)
            counts = self._adjustments.counts(admission.row)
            if counts is not None:
                self._counts[admission.row] = counts.numpy()

    def release(self, row: int) -> None:
        self._rows.discard(row)
        self._counts.pop(row, None)
        self._sampler.release(row)

    def reset(self) -> None:
        self._rows.clear()
        self._counts.clear()
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
        num_proposed = None
        if self._drafting is not None:
            if self._may_be_ready:  # drafts that nobody has verified
                self._memory.ready.fill(0)
                self._may_be_ready = False
            self._drafting.skip(plan)
            num_proposed = [0] * plan.num_sampling
        result = steps.run(plan, begun, num_proposed)
        if self._counts:
            self._count(plan, result)
        return result

    def _count(self, plan: StepPlan, result: StepResult) -> None:
        for row, token in zip(plan.rows, result.tokens, strict=False):
            counts = self._counts.get(row)
            if counts is not None:
                counts[token] += OUTPUT_UNIT

    def _linked(self) -> CoreSteps | None:
        """None until the model has been recorded, which its first step does."""
        if self._steps is None:
            model = self._recorded.core_model()
            if model is not None:
                keep = None if self._drafting is None else self._drafting.keep_later
                self._steps = CoreSteps(model, self._sampler, self._memory, self._block_size, keep=keep)
        return self._steps
