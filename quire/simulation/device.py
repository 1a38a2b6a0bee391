"""SimulatedDevice: follows step plans the way a worker would, with a row per sequence, and says how long they take.

It sees plans only, never the scheduler. Every plan is checked against what the rows hold, so a wrong delta fails
here at once. It alone knows where each answer ends.
"""

from collections.abc import Mapping

from quire.core.errors import QuireError
from quire.core.plan import StepPlan, TableDelta
from quire.core.result import StepResult
from quire.simulation.cost import CostModel, StepWork
from quire.simulation.march import March
from quire.simulation.row import Row
from quire.simulation.workload import END


class ImpossiblePlan(QuireError):
    """A plan that no worker could carry out: the scheduler and the rows have come apart."""


class SimulatedDevice:
    """Rows, and the time they take."""

    def __init__(self, cost: CostModel, lengths: Mapping[str, int], block_size: int, num_blocks: int) -> None:
        self._cost = cost
        self._lengths = lengths
        """Output tokens of the sequences of each request, by request id."""
        self._block_size = block_size
        self._num_blocks = num_blocks
        self._rows: dict[int, Row] = {}
        self._march = March()

    def execute(self, plan: StepPlan) -> StepResult:
        """Carry out a step; `elapsed` is how long it would have taken."""
        self._change_rows(plan)
        work = StepWork(
            num_tokens=plan.num_tokens,
            copied_blocks=len(plan.copies),
            swapped_blocks=len(plan.swap_out) + len(plan.swap_in),
        )
        tokens = self._compute(plan, work)
        if self._cost.has_windows:
            self._look_through_windows(plan, work)
        return StepResult(step=plan.step, tokens=tokens, elapsed=self._cost.seconds(work))

    def _change_rows(self, plan: StepPlan) -> None:
        rows = self._rows
        for number in plan.released:
            row = rows.pop(number, None)
            if row is None:
                raise ImpossiblePlan(f"step {plan.step} releases row {number}, which no sequence has")
            self._march.leave(row)
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
            raise ImpossiblePlan(f"step {step} changes the table of row {delta.row}, which no sequence has")
        length = len(delta.tables[0])
        if delta.start * self._block_size > row.slots:
            raise ImpossiblePlan(f"step {step}: the table of {row.name} has a hole before block {delta.start}")
        for blocks in delta.tables:
            if len(blocks) != length:
                raise ImpossiblePlan(f"step {step}: the table of {row.name} has groups of different length")
            if blocks and not 0 <= min(blocks) <= max(blocks) <= self._num_blocks:
                raise ImpossiblePlan(f"step {step}: {row.name} gets a block that is not there")
        row.slots = (delta.start + length) * self._block_size

    def _compute(self, plan: StepPlan, work: StepWork) -> list[int]:
        """Advance the rows of the batch; the tokens they sample."""
        march = self._march
        if not march.leads(plan):
            march.disperse()
        num_marching = len(march)
        work.context = march.context
        work.pairs = march.context + num_marching
        tokens, short = march.advance()
        if short:
            raise ImpossiblePlan(f"step {plan.step} computes a token of {short[0].name} that has no block")
        for position in range(num_marching, len(plan.rows)):
            row = self._rows.get(plan.rows[position])
            if row is None:
                raise ImpossiblePlan(f"step {plan.step} computes row {plan.rows[position]}, which no sequence has")
            self._compute_alone(plan, row, position, work)
            if position < plan.num_sampling:
                tokens.append(row.token if row.known < row.end else END)
                march.join(row)
        return tokens

    def _compute_alone(self, plan: StepPlan, row: Row, position: int, work: StepWork) -> None:
        start, count, samples = row.computed, plan.counts[position], position < plan.num_sampling
        row.computed = start + count
        if not (start < row.computed <= min(row.known, row.slots)) or samples != (row.computed == row.known):
            raise ImpossiblePlan(
                f"step {plan.step} computes {count} tokens of {row.name} from {start} on, "
                f"but it has {row.known} tokens and blocks for {row.slots}"
            )
        row.known += samples
        work.context += start
        work.pairs += count * start + count * (count + 1) // 2

    def _look_through_windows(self, plan: StepPlan, work: StepWork) -> None:
        """Count context and pairs again for layers that do not look back all the way."""
        self._march.disperse()
        work.context = work.pairs = 0
        for number, count in zip(plan.rows, plan.counts, strict=True):
            start = self._rows[number].computed - count
            work.context += self._cost.visible(start)
            work.pairs += count * self._cost.visible(start + (count + 1) // 2)
