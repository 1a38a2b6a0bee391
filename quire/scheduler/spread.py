"""SpreadScheduler: one scheduler for each attention rank, all in step.

Every rank has rows, blocks and a prefix cache of its own, so each has a whole scheduler; a request stays with the one
that gets it. All plan the same steps: what they plan together is one plan, and what comes of it one result. A rank that
has nothing to do in a step is told so, since its experts are needed by the others.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from msgspec import structs

from quire.config.resolved import StepLimits
from quire.core.draft_counts import DraftCounts
from quire.core.plan import StepPlan
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.kvcache.manager import KVManager
from quire.scheduler.adapter_room import AdapterRoom
from quire.scheduler.intake import StepUpdate
from quire.scheduler.rank_choice import choose_rank
from quire.scheduler.roster import RosterStats
from quire.scheduler.scheduler import Scheduler


class SpreadScheduler:
    """A StepScheduler of several."""

    def __init__(self, schedulers: Seq[Scheduler]) -> None:
        """By rank; all have the same limits, and number their sequences together."""
        self._ranks = list(schedulers)
        self._first = self._ranks[0]

    # -- requests ----------------------------------------------------------------------------------------------

    def add(self, request: Request) -> list[Sequence]:
        return self._ranks[choose_rank(request, self._ranks)].add(request)

    def abort(self, request_id: str, status: Status = Status.ABORTED) -> None:
        self._of(request_id).abort(request_id, status)

    def end(self, seq: Sequence, status: Status) -> None:
        self._of(seq.request.id).end(seq, status)

    def fork(self, parent: Sequence, last_token: int) -> Sequence:
        return self._of(parent.request.id).fork(parent, last_token)

    def rewrite(self, seq: Sequence, last_token: int) -> None:
        self._of(seq.request.id).rewrite(seq, last_token)

    def hold(self, request_id: str) -> None:
        self._of(request_id).hold(request_id)

    def resume(self, request_id: str) -> None:
        self._of(request_id).resume(request_id)

    def sequences_of(self, request_id: str) -> list[Sequence]:
        return self._of(request_id).sequences_of(request_id)

    def take_finished(self) -> list[Sequence]:
        return [seq for each in self._ranks for seq in each.take_finished()]

    def weigh_tenants(self, weights: Mapping[str, float]) -> None:
        for each in self._ranks:
            each.weigh_tenants(weights)

    # -- figures -----------------------------------------------------------------------------------------------

    @property
    def limits(self) -> StepLimits:
        """Of each rank."""
        return self._first.limits

    @property
    def adapters(self) -> AdapterRoom | None:
        return self._first.adapters

    @property
    def kv_of_ranks(self) -> Seq[KVManager]:
        return [each.kv for each in self._ranks]

    @property
    def stats(self) -> RosterStats:
        found = [each.stats for each in self._ranks]
        return RosterStats(
            paused=sum(each.paused for each in found),
            preempted_recompute=sum(each.preempted_recompute for each in found),
            preempted_swap=sum(each.preempted_swap for each in found),
        )

    @property
    def running(self) -> list[Sequence]:
        return [seq for each in self._ranks for seq in each.running]

    @property
    def num_waiting(self) -> int:
        return sum(each.num_waiting for each in self._ranks)

    @property
    def num_held(self) -> int:
        return sum(each.num_held for each in self._ranks)

    @property
    def live_requests(self) -> list[str]:
        return [request_id for each in self._ranks for request_id in each.live_requests]

    @property
    def has_work(self) -> bool:
        return any(each.has_work for each in self._ranks)

    @property
    def can_advance(self) -> bool:
        return any(each.can_advance for each in self._ranks)

    @property
    def drafts(self) -> DraftCounts:
        return sum((each.drafts for each in self._ranks), DraftCounts())

    @property
    def draft_method(self) -> str:
        return self._first.draft_method

    @property
    def drafts_are_off(self) -> bool:
        return self._first.drafts_are_off

    @drafts_are_off.setter
    def drafts_are_off(self, are_off: bool) -> None:
        for each in self._ranks:
            each.drafts_are_off = are_off

    @property
    def token_budget(self) -> int:
        """Of each rank."""
        return self._first.token_budget

    @token_budget.setter
    def token_budget(self, budget: int) -> None:
        for each in self._ranks:
            each.token_budget = budget

    # -- a step ------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan:
        plans = [each.schedule(now) for each in self._ranks]
        if all(plan.is_empty for plan in plans):
            return plans[0]
        tokens = [plan.num_tokens for plan in plans]
        first, *others = [structs.replace(plan, rank_tokens=tokens) for plan in plans]
        return structs.replace(first, others=others)

    def update(self, result: StepResult) -> StepUpdate:
        update = StepUpdate([], [])
        for each, found in zip(self._ranks, result.of_all(), strict=True):
            if each.settled_step >= result.step:  # it had no rows in this step
                continue
            part = each.update(found)
            update.sequences += part.sequences
            update.tokens += part.tokens
            update.logprobs |= part.logprobs
            update.prompt_logprobs += part.prompt_logprobs
            update.pooled |= part.pooled
        return update

    def rollback(self, step: int) -> list[Sequence]:
        return [seq for each in self._ranks for seq in each.rollback(step)]

    def _of(self, request_id: str) -> Scheduler:
        """Who has a request; of one that has ended anybody knows as little."""
        return next((each for each in self._ranks if each.sequences_of(request_id)), self._first)
