"""CoreSteps: steps on the native core and numpy's arrays alone. No torch.

Both workers of a CPU take them: the one that has no torch all of its steps, the whole one those that need none of it.
"""

import time
from collections.abc import Callable

from quire.core.plan import Admission, StepPlan
from quire.core.request import Request
from quire.core.result import StepResult
from quire.sampling.core_sampler import CoreSampler, can_draw
from quire.worker.core_memory import CoreMemory
from quire.worker.core_model import CoreModel, CoreStep, Floats, step_arrays
from quire.worker.speculative.core_drafting import CoreDrafting

Keep = Callable[[CoreStep, Floats, Floats], None]
"""Told of each step, as `CoreModel.hidden` has it: hidden states, and what entered the layers that are tapped."""


def core_can_run(asked: Request | Admission) -> bool:
    """Whether the core alone does what is asked."""
    return asked.pooling is None and not asked.media and can_draw(asked.params)


class CoreStepDone:
    """A step that is over when it is returned, as every step of a CPU is."""

    media: None = None
    """The core alone takes no such prompt."""

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def result(self) -> StepResult:
        return self._result


class CoreSteps:
    """Of one worker, whose rows are as the plan wants them when a step begins."""

    def __init__(
        self,
        model: CoreModel,
        sampler: CoreSampler,
        memory: CoreMemory,
        block_size: int,
        drafting: CoreDrafting | None = None,
        keep: Keep | None = None,
    ) -> None:
        """`drafting` is speculative decoding; without it plans have no drafts."""
        self._model = model
        self._sampler = sampler
        self._memory = memory
        self._block_size = block_size
        self._drafting = drafting
        self._keep = keep

    def run(self, plan: StepPlan, begun: float, num_proposed: list[int] | None = None) -> StepResult:
        """A plan with rows; `begun` is when its step began; `num_proposed` is what its result says of drafts, where
        others make them."""
        memory, lengths = self._memory, self._memory.lengths
        lengths.count(plan)
        max_blocks = lengths.most_blocks(plan, self._block_size)
        step = step_arrays(memory, plan.rows, plan.counts, self._block_size, max_blocks)
        hidden, tapped = self._model.hidden(step, lengths.tokens_of_prompts(plan))
        if self._keep is not None:
            self._keep(step, hidden, tapped)
        samples = plan.num_sampling
        if not samples:
            memory.rows.finish_step(step.rows.ctypes.data, step.lengths.ctypes.data, len(step.rows), 0, 0)
            return StepResult(step=plan.step, elapsed=time.perf_counter() - begun)
        if plan.num_drafts:
            assert self._drafting is not None, "nobody drafts"
            return self._verify(self._drafting, plan, step, hidden, begun)
        last = hidden if samples == len(hidden) else hidden.take(step.starts[1 : samples + 1] - 1, axis=0)
        logits = self._model.logits(last, lengths.ends_of_prompts(plan))
        drawn = self._sampler.draw(logits, plan.rows[:samples], step.lengths, memory.tokens)
        memory.rows.finish_step(
            step.rows.ctypes.data, step.lengths.ctypes.data, len(step.rows), drawn.tokens.ctypes.data, samples
        )
        if self._drafting is not None:
            num_proposed = self._drafting.propose(step.rows[:samples], plan.num_wanted)
        return StepResult(
            step=plan.step,
            tokens=drawn.tokens.tolist(),
            num_proposed=num_proposed,
            invalid=drawn.invalid.nonzero()[0].tolist(),
            logprobs={place: [each] for place, each in drawn.logprobs.items()},
            elapsed=time.perf_counter() - begun,
        )

    def _verify(
        self, drafting: CoreDrafting, plan: StepPlan, step: CoreStep, hidden: Floats, begun: float
    ) -> StepResult:
        """The end of a step that has drafts."""
        memory, samples = self._memory, plan.num_sampling
        layout = drafting.layout(plan, step)
        last = hidden if len(layout.indices) == len(hidden) else hidden.take(layout.indices, axis=0)
        logits = self._model.logits(last, memory.lengths.ends_of_prompts(plan))
        drawn = self._sampler.draw(logits, layout.rows, layout.positions, memory.tokens)
        others = step.rows[samples:]
        if len(others):
            memory.rows.finish_step(others.ctypes.data, step.lengths[samples:].ctypes.data, len(others), 0, 0)
        return drafting.finish(plan, step, layout, drawn, begun)
