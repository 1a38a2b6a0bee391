"""FollowingProposer: one that must see every token, sees them only where drafts are wanted, and catches up with what it
has missed."""

from collections.abc import Sequence

from quire.config.resolved import StepLimits
from quire.core.plan import Admission, StepPlan
from quire.kvcache.storage import KVStorage
from quire.worker.speculative.proposer import Proposer

_MOST_MISSED = 4096
"""Tokens that it catches up with; a sequence that has had more without drafts goes on without."""


class FollowingProposer(Proposer):
    """A base for those that keep something of every token in the blocks of the large model."""

    can_be_captured = True
    costs_time = True

    def __init__(self, limits: StepLimits, storages: Sequence[KVStorage]) -> None:
        self._most_tokens = limits.max_num_batched_tokens
        self._storages = list(storages)
        self._missed = [0] * limits.max_num_seqs
        """By row: how many tokens before the one to be computed next it has not seen."""

    def storages(self) -> list[KVStorage]:
        return self._storages

    def move(self, plan: StepPlan) -> None:
        for storage in self._storages:
            storage.move(plan.swap_out, plan.swap_in, plan.copies)

    def admit(self, admission: Admission) -> None:
        """What the prefix cache has found it has computed with the large model, or drafts are worse for a while."""
        self._missed[admission.row] = 0

    def skip(self, plan: StepPlan) -> None:
        """A step is computed for which nothing is proposed."""
        self._note(plan, of_skipped=True)

    def prepare(self, plan: StepPlan) -> None:
        """Rows are about to have drafts verified, and new ones proposed, within a graph."""
        self._catch_up([row for row in plan.rows if self._missed[row]])

    def follow(self, plan: StepPlan) -> None:
        """A step was computed whose sampling rows are to have proposals."""
        self._note(plan, of_skipped=False)
        self._catch_up([row for row in plan.rows[: plan.num_sampling] if self._missed[row]])

    def _sees_drafts(self, of_skipped: bool) -> bool:
        """Whether it has seen tokens that were its drafts, or sees them when it proposes next; `of_skipped`: behind a
        step for which it does not."""
        return True

    def _compute_missed(self, rows: list[int], counts: list[int]) -> None:
        """See so many tokens of these rows, from the first that each has missed on."""
        raise NotImplementedError("each has its own")  # abstract

    def _note(self, plan: StepPlan, *, of_skipped: bool) -> None:
        drafts = plan.num_drafts + [0] * (len(plan.rows) - len(plan.num_drafts))
        sees_drafts = self._sees_drafts(of_skipped)
        for row, count, drafted in zip(plan.rows, plan.counts, drafts, strict=True):
            if not drafted or not sees_drafts:
                self._missed[row] += count
            elif self._missed[row]:  # there were no drafts, whatever was planned: the row has got one token
                self._missed[row] += 1

    def _catch_up(self, rows: Sequence[int]) -> None:
        """Compute what it has missed of these rows, a few at a time."""
        rows = [row for row in rows if self._missed[row] <= _MOST_MISSED]
        while rows:
            some: list[int] = []
            counts: list[int] = []
            for row in rows:
                count = min(self._missed[row], self._most_tokens - sum(counts))
                if count:
                    some.append(row)
                    counts.append(count)
            self._compute_missed(some, counts)
            for row, count in zip(some, counts, strict=True):
                self._missed[row] -= count
            rows = [row for row in rows if self._missed[row]]
