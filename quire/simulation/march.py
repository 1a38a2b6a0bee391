"""March: rows that get one token in every step, advanced all together.

Such a row is described by what it had computed at tick 0; a tick of the common clock moves them all. A row is looked at
only when its blocks run out or its answer ends, so that a step of many decodes costs a few list operations.
"""

from quire.core.plan import StepPlan
from quire.simulation.row import Row
from quire.simulation.workload import END


class March:
    """Rows in the order of the batch."""

    def __init__(self) -> None:
        self._tick = 0
        self._numbers: list[int] = []
        self._rows: list[Row] = []
        self._tokens: list[int] = []
        self._due: dict[int, list[Row]] = {}
        self._context = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def context(self) -> int:
        """Tokens that the rows have computed in all."""
        return self._context

    def leads(self, plan: StepPlan) -> bool:
        """Whether a step begins with exactly these rows, with a sampled token each."""
        length = len(self._numbers)
        if plan.num_sampling < length or plan.rows[:length] != self._numbers:
            return False
        return plan.counts[:length].count(1) == length

    def join(self, row: Row) -> None:
        """A row that has just sampled its newest token goes on with the others."""
        self._context += row.computed
        row.computed -= self._tick
        self._numbers.append(row.number)
        self._rows.append(row)
        self._tokens.append(row.token)
        self._look_at(row)

    def leave(self, row: Row) -> bool:
        """Take a row out; False when it does not march."""
        if row.number not in self._numbers:
            return False
        position = self._numbers.index(row.number)
        del self._numbers[position], self._rows[position], self._tokens[position]
        self._settle(row)
        self._context -= row.computed
        return True

    def disperse(self) -> None:
        """Take all rows out."""
        for row in self._rows:
            self._settle(row)
        self._numbers, self._rows, self._tokens = [], [], []
        self._due, self._context = {}, 0

    def advance(self) -> tuple[list[int], list[Row]]:
        """One token for each: the tokens they sample, and rows whose blocks do not hold it."""
        self._tick += 1
        self._context += len(self._rows)
        short = []
        for row in self._due.pop(self._tick, ()):
            if row.due == self._tick:
                if row.computed + self._tick > row.slots:
                    short.append(row)
                self._look_at(row)
        return self._tokens.copy(), short

    def _settle(self, row: Row) -> None:
        row.computed += self._tick
        row.known = row.computed + 1
        row.due = 0

    def _look_at(self, row: Row) -> None:
        """See whether its answer is over, and when to look again."""
        last = row.end - 1 - row.computed
        """The tick at which it samples its end."""
        if last <= self._tick:
            self._tokens[self._numbers.index(row.number)] = END
        full = max(row.slots - row.computed, self._tick) + 1
        row.due = min(full, last) if last > self._tick else full
        self._due.setdefault(row.due, []).append(row)
