"""SimulatedDevice: follows step plans the way a worker would, with a row per sequence, and says how long they take.

It sees plans only, never the scheduler. Every plan is checked against what the rows hold, so a wrong delta fails
here at once. It alone knows where each answer ends.
"""

from collections.abc import Mapping
from zlib import crc32

from quire.core.errors import QuireError
from quire.core.plan import Admission, StepPlan, TableDelta
from quire.core.result import StepResult
from quire.engine.simulation.cost import CostModel, StepWork
from quire.engine.simulation.workload import END, FIRST_SAMPLED, FIRST_SHARED


class ImpossiblePlan(QuireError):  # noqa: N818 - our own invariant, not a user's error
    """A plan that no worker could carry out: the scheduler and the rows have come apart."""


class Row:
    """What the device keeps of one sequence."""

    __slots__ = ("computed", "end", "known", "name", "slots", "table_length", "token")

    def __init__(self, admission: Admission, length: int) -> None:
        self.name = f"{admission.request_id}/{admission.index}"
        self.computed = admission.num_computed
        self.known = len(admission.tokens)
        self.table_length = 0
        self.slots = 0
        self.end = admission.num_prompt + length
        """Tokens, prompt included, at which the sequence has said all it has to say."""
        self.token = FIRST_SAMPLED + crc32(self.name.encode()) % (FIRST_SHARED - FIRST_SAMPLED)
        """What it samples until then: no other sequence says the same."""


class SimulatedDevice:
    """Rows, and the time they take."""

    def __init__(self, cost: CostModel, lengths: Mapping[str, int], block_size: int, num_blocks: int) -> None:
        self._cost = cost
        self._lengths = lengths
        """Output tokens of the sequences of each request, by request id."""
        self._block_size = block_size
        self._num_blocks = num_blocks
        self._rows: dict[int, Row] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        """Carry out a step; `elapsed` is how long it would have taken."""
        self._change_rows(plan)
        work = StepWork(
            copied_blocks=len(plan.copies), swapped_blocks=len(plan.swap_out) + len(plan.swap_in)
        )
        tokens = self._compute(plan, work)
        return StepResult(step=plan.step, tokens=tokens, elapsed=self._cost.seconds(work))

    def _change_rows(self, plan: StepPlan) -> None:
        rows = self._rows
        for row in plan.released:
            if rows.pop(row, None) is None:
                raise ImpossiblePlan(f"step {plan.step} releases row {row}, which nobody has")
        for admission in plan.admitted:
            if admission.row in rows:
                raise ImpossiblePlan(f"step {plan.step} gives row {admission.row} to two sequences")
            rows[admission.row] = Row(admission, self._lengths[admission.request_id])
            self._set_table(TableDelta(admission.row, 0, admission.tables), plan.step)
        for delta in plan.table_deltas:
            self._set_table(delta, plan.step)

    def _set_table(self, delta: TableDelta, step: int) -> None:
        row = self._rows.get(delta.row)
        if row is None:
            raise ImpossiblePlan(f"step {step} changes the table of row {delta.row}, which nobody has")
        lengths = {len(blocks) for blocks in delta.tables}
        if len(lengths) != 1 or delta.start > row.table_length:
            raise ImpossiblePlan(f"step {step}: the table of {row.name} has a hole or groups of different length")
        for blocks in delta.tables:
            if blocks and not 0 <= min(blocks) <= max(blocks) <= self._num_blocks:
                raise ImpossiblePlan(f"step {step}: {row.name} gets a block that is not there")
        row.table_length = delta.start + lengths.pop()
        row.slots = row.table_length * self._block_size

    def _compute(self, plan: StepPlan, work: StepWork) -> list[int]:
        """Advance the rows of the batch; the tokens they sample. Runs for every token, so it does no more than it must."""
        rows, tokens = self._rows, []
        context, pairs, sampling = 0, 0, plan.num_sampling
        for position, (number, count) in enumerate(zip(plan.rows, plan.counts, strict=True)):
            row = rows[number]
            start = row.computed
            row.computed = computed = start + count
            if computed > row.slots or computed > row.known or count < 1:
                raise self._impossible(plan, row, start, count)
            context += start
            if count == 1:
                pairs += computed
            else:
                pairs += count * start + count * (count + 1) // 2
            if position < sampling:
                if computed != row.known:
                    raise self._impossible(plan, row, start, count)
                row.known = computed + 1
                tokens.append(row.token if computed + 1 < row.end else END)
        work.num_tokens = sum(plan.counts)
        work.context, work.pairs = self._seen_through_windows(plan) if self._cost.has_windows else (context, pairs)
        return tokens

    def _seen_through_windows(self, plan: StepPlan) -> tuple[int, int]:
        """Context and pairs of a batch that has just been computed, for layers that do not look back all the way."""
        context = pairs = 0
        for number, count in zip(plan.rows, plan.counts, strict=True):
            start = self._rows[number].computed - count
            context += self._cost.visible(start)
            pairs += count * self._cost.visible(start + (count + 1) // 2)
        return context, pairs

    def _impossible(self, plan: StepPlan, row: Row, start: int, count: int) -> ImpossiblePlan:
        return ImpossiblePlan(
            f"step {plan.step} computes {count} tokens of {row.name} from {start} on, but it has {row.known} tokens and "
            f"blocks for {row.slots}"
        )
