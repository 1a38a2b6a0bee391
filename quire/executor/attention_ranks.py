"""Steps in which each rank attends to sequences of its own: every rank runs its own plan, and results are all ranks'.

A rank reads its part of a step when the first one reads its own, so that all run ahead of the host equally far.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from quire.core.plan import StepPlan
from quire.core.result import EncoderFigures, StepResult
from quire.executor.base import StepHandle
from quire.executor.rank_errands import RankErrands
from quire.executor.rank_messages import ReadStep, StepRead

if TYPE_CHECKING:
    from quire.worker.core_steps import CoreStepDone
    from quire.worker.running_step import RunningStep


class SpreadStep(StepHandle):
    """Seen from the first rank, which has started its own part."""

    def __init__(self, own: StepHandle, step: int, errands: RankErrands) -> None:
        self._own = own
        self._step = step
        self._errands = errands

    def result(self) -> StepResult:
        awaited = self._errands.ask(lambda number: ReadStep(number, self._step))  # while this rank waits for its own
        own = self._own.result()
        others = [each.result() for each in awaited]
        results = [own, *others]
        encoder = EncoderFigures.sum(each.encoder for each in results if each.encoder is not None)
        return structs.replace(own, others=others, encoder=encoder, elapsed=max(each.elapsed for each in results))


class OwnSteps:
    """In the process of another rank: steps that it has started and nobody has read."""

    def __init__(self, rank: int, say: Callable[[StepRead], None]) -> None:
        self._rank = rank
        self._say = say
        self._unread: dict[int, RunningStep | CoreStepDone] = {}

    def part(self, plan: StepPlan) -> StepPlan:
        """What this rank does of a step."""
        return plan.of_rank(self._rank)

    def started(self, plan: StepPlan, running: "RunningStep | CoreStepDone") -> None:
        if plan.others and plan.computes:  # of others nobody asks for results
            self._unread[plan.step] = running

    def read(self, asked: ReadStep) -> None:
        self._say(StepRead(asked.number, self._unread.pop(asked.step).result()))
