"""PlanLengths: how many tokens each row has computed, as the host knows it, and what follows for a plan."""

from quire.core.pasts import Pasts
from quire.core.plan import Admission, StepPlan


class PlanLengths:
    """Of the rows of one worker."""

    def __init__(self, max_rows: int) -> None:
        self.computed = [0] * max_rows
        self._prompts = [0] * max_rows

    def admit(self, admission: Admission) -> None:
        self.computed[admission.row] = admission.num_computed
        self._prompts[admission.row] = admission.num_prompt

    def count(self, plan: StepPlan) -> None:
        """The plan's tokens are being computed."""
        for row, count in zip(plan.rows, plan.counts, strict=True):
            self.computed[row] += count

    def most_blocks(self, plan: StepPlan, block_size: int) -> int:
        """Blocks of the longest row in the plan."""
        return -(-max(self.computed[row] for row in plan.rows) // block_size)

    def pasts(self, plan: StepPlan) -> Pasts:
        """Which of the plan's rows have tokens from before it."""
        token = 0
        past, fresh = (0, 0), None
        for sequence, (row, count) in enumerate(zip(plan.rows, plan.counts, strict=True)):
            if self.computed[row] > count:
                past = (sequence + 1, token + count)
            elif fresh is None:
                fresh = (sequence, token)
            token += count
        return Pasts(*past, *(fresh or (len(plan.rows), token)))

    def tokens_of_prompts(self, plan: StepPlan) -> range:
        """Where the plan's prompt chunks lie, which it has side by side."""
        begin = end = start = 0
        for row, count in zip(plan.rows, plan.counts, strict=True):
            if self._is_in_prompt(row):
                begin, end = begin if end else start, start + count
            start += count
        return range(begin, end)

    def ends_of_prompts(self, plan: StepPlan) -> range:
        """Which of the rows that sample do so at the end of their prompt: a plan has them after the answers."""
        ends = sum(self._is_in_prompt(row) for row in plan.rows[: plan.num_sampling])
        return range(plan.num_sampling - ends, plan.num_sampling)

    def _is_in_prompt(self, row: int) -> bool:
        """Whether the plan's last token of this row is its prompt's."""
        return self.computed[row] <= self._prompts[row]
