"""CoreDrafting: speculative decoding on the native core alone, over the memory that torch can take over. No torch."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quire.config.speculation import Speculation
from quire.core.plan import Admission, StepPlan
from quire.core.result import StepResult
from quire.ops.cpu.accept_drafts import accept_in_memory
from quire.ops.cpu.lookup_drafts import lookup_in_memory
from quire.sampling.core_sampler import CoreDrawn
from quire.worker.core_memory import CoreMemory
from quire.worker.core_model import CoreStep, Integers
from quire.worker.speculative.recent_answers import RecentAnswers

CORE_METHODS = frozenset({"ngram", "suffix"})
"""Methods whose drafts need no torch."""
FEWEST_AGREEING = 2
"""Last tokens that must agree for `suffix`: what follows a single one says little."""


@dataclass(frozen=True, slots=True)
class CoreDraftLayout:
    """Where a step draws: behind the last token of every sampling row, and behind each of its drafts."""

    rows: list[int]
    """By place that is drawn at: its row."""
    indices: Integers  # which of the step's tokens it is behind
    positions: Integers  # where a token drawn there stands
    granted: Integers  # by sampling row: its drafts


class CoreDrafting:
    """Of one worker."""

    def __init__(self, asked: Speculation, memory: CoreMemory) -> None:
        """By one of `CORE_METHODS`."""
        self._memory = memory
        self._most = asked.num_speculative_tokens
        self._agreeing = (asked.prompt_lookup_min, asked.prompt_lookup_max)
        """How many of its last tokens a sequence must have said before, and up to how many more of them are better."""
        self._prompts: dict[int, int] = {}
        """By row: where its answer begins."""
        if asked.method == "suffix":
            self._agreeing = (FEWEST_AGREEING, asked.suffix_decoding_max_tree_depth)
            memory.answers = RecentAnswers(asked.suffix_decoding_max_cached_requests)

    def admit(self, admission: Admission) -> None:
        """A row has another sequence."""
        row = admission.row
        self._memory.ready[row], self._memory.may_draft[row] = 0, True
        self._prompts[row] = admission.num_prompt

    def release(self, row: int) -> None:
        """A row has lost its sequence, whose answer may be remembered."""
        begin = self._prompts.pop(row, None)
        if begin is not None and self._memory.answers is not None:
            self._memory.answers.remember(self._memory.tokens[row, begin : self._memory.computed[row] + 1])

    def reset(self) -> None:
        """All rows are free, and what was being said is not remembered."""
        self._prompts.clear()

    def propose(self, rows: Integers, wanted: int) -> list[int]:
        """New drafts for these rows, if any are wanted; returns how many each has. If any, then as many as there may
        ever be: more cost nothing."""
        memory = self._memory
        if not wanted:
            memory.ready[rows] = 0
            return [0] * len(rows)
        recent = None if memory.answers is None else memory.answers.joined()
        lookup_in_memory(
            *(memory.tokens, memory.computed, rows, memory.ready, memory.may_draft),
            *(*self._agreeing, self._most, recent),
        )
        proposed: list[int] = memory.ready[rows].tolist()
        return proposed

    def layout(self, plan: StepPlan, step: CoreStep) -> CoreDraftLayout:
        """Of a step that has drafts."""
        samples = plan.num_sampling
        granted = np.array(plan.num_drafts, dtype=np.int64)
        back = np.concatenate([np.arange(-count, 1) for count in plan.num_drafts])
        owners = np.repeat(np.arange(samples), granted + 1)
        rows = [row for row, count in zip(plan.rows, plan.num_drafts, strict=False) for _ in range(count + 1)]
        return CoreDraftLayout(rows, step.starts[1:][owners] - 1 + back, step.lengths[owners] + back, granted)

    def finish(
        self,
        plan: StepPlan,
        step: CoreStep,
        layout: CoreDraftLayout,
        drawn: CoreDrawn,
        begun: float,
    ) -> StepResult:
        """Take what is right, propose what comes next, and tell of both; `begun` is when the step began."""
        memory, samples, granted = self._memory, plan.num_sampling, layout.granted
        rows, lengths = step.rows[:samples], step.lengths[:samples]
        ends = np.cumsum(granted + 1)
        firsts = ends - granted - 1
        by_row = _by_row(drawn.tokens, firsts, granted)
        counts, verified = accept_in_memory(
            memory.tokens, memory.computed, rows, lengths, granted, by_row, memory.ready
        )
        num_proposed = self.propose(rows, plan.num_wanted)
        told = counts.tolist()
        memory.lengths.note_verified(plan)(told)
        is_taken = np.arange(by_row.shape[1]) < counts[:, None]
        is_invalid: NDArray[np.bool_] = np.any(_by_row(drawn.invalid, firsts, granted) & is_taken, axis=1)
        reported = {
            place: [drawn.logprobs[first + number] for number in range(count)]
            for place, (first, count) in enumerate(zip(firsts.tolist(), told, strict=True))
            if first in drawn.logprobs
        }
        return StepResult(
            step=plan.step,
            tokens=by_row[is_taken].tolist(),
            counts=told,
            num_drafted=int(verified.sum()),
            num_proposed=num_proposed,
            invalid=np.flatnonzero(is_invalid).tolist(),
            logprobs=reported,
            elapsed=time.perf_counter() - begun,
        )


def _by_row(values: NDArray[Any], firsts: Integers, granted: Integers) -> NDArray[Any]:
    """[places] as [rows, most places]; rows with fewer repeat their last."""
    within = np.minimum(np.arange(granted.max(initial=0) + 1), granted[:, None])
    found: NDArray[Any] = values[firsts[:, None] + within]
    return found
