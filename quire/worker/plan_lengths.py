"""PlanLengths: how many tokens each row has computed, as the host knows it, and what follows for a plan."""

from collections.abc import Callable, Iterable, Sequence

from quire.core.pasts import Pasts
from quire.core.plan import Admission, StepPlan


class PlanLengths:
    """Of the rows of one worker."""

    def __init__(self, max_rows: int) -> None:
        self.computed = [0] * max_rows
        """If all drafts are right that nobody has heard of yet."""
        self.unverified = [0] * max_rows
        """Of those, drafts."""
        self._prompts = [0] * max_rows
        self._admissions = [0] * max_rows
        """How many sequences a row has had."""

    def admit(self, admission: Admission) -> None:
        row = admission.row
        self.computed[row] = admission.num_computed
        self.unverified[row] = 0
        self._prompts[row] = admission.num_prompt
        self._admissions[row] += 1

    def count(self, plan: StepPlan) -> None:
        """The plan's tokens are being computed."""
        for row, count in zip(plan.rows, plan.counts, strict=True):
            self.computed[row] += count
        for row, drafts in zip(plan.rows, plan.num_drafts, strict=False):
            self.unverified[row] += drafts

    def fewest(self, rows: Iterable[int]) -> dict[int, int]:
        """By row: tokens it has computed, if all drafts are wrong."""
        return {row: self.computed[row] - self.unverified[row] for row in rows}

    def note_verified(self, plan: StepPlan) -> Callable[[Sequence[int]], None]:
        """What to call with the counts of tokens that the plan's rows have got, once they are known."""
        drafting = [
            (place, row, drafts)
            for place, (row, drafts) in enumerate(zip(plan.rows, plan.num_drafts, strict=False))
            if drafts
        ]
        admissions = [self._admissions[row] for _, row, _ in drafting]

        def note(counts: Sequence[int]) -> None:
            for (place, row, drafts), admission in zip(drafting, admissions, strict=True):
                if self._admissions[row] == admission:
                    self.computed[row] -= drafts + 1 - counts[place]
                    self.unverified[row] -= drafts

        return note

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
        """Which of the logits, one for each row that samples and one for each draft, are of the end of a prompt: a plan
        has them after the answers."""
        ends = sum(self._is_in_prompt(row) for row in plan.rows[: plan.num_sampling])
        total = plan.num_sampling + sum(plan.num_drafts)
        return range(total - ends, total)

    def _is_in_prompt(self, row: int) -> bool:
        """Whether the plan's last token of this row is its prompt's."""
        return self.computed[row] <= self._prompts[row]
