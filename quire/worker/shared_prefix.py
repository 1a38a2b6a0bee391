"""SharedPrefixes: whether many running sequences have so many blocks in common that attention does well to know.

The host looks only at a block here and there of each row's table, at doubling depths: sequences that have one in common
have all before it in common. What exactly they share is found on the device, in every step.
"""

from collections import Counter
from collections.abc import Sequence

from quire.core.plan import Admission, TableDelta

FIRST_DEPTH = 256
"""Positions; less in common is not looked for."""
FEWEST = 8
"""Rows that share a prefix, for it to count."""


class SharedPrefixes:
    """Follows the tables of rows, in one KV group."""

    def __init__(
        self, num_rows: int, max_len: int, block_size: int, group: int, bytes_per_position: int, least_saved: int
    ) -> None:
        """`least_saved`: bytes that a layer of a step must be spared for a look to gain more than it costs."""
        self._group = group
        self._least_saved = least_saved
        self._bytes_per_position = bytes_per_position
        depths: list[int] = []
        while (depth := FIRST_DEPTH << len(depths)) < max_len:
            depths.append(depth)
        self._columns = {(depth - 1) // block_size: depth for depth in depths}
        self._blocks = {column: [0] * num_rows for column in self._columns}
        """By column of the tables: the block of each row there, 0 where it has none."""
        self._answer: tuple[Sequence[int], bool] | None = None
        """For the last rows asked about, until a block that counts changes."""

    def admit(self, admission: Admission) -> None:
        table = admission.tables[self._group]
        for column, blocks in self._blocks.items():
            blocks[admission.row] = table[column] if column < len(table) else 0
        self._answer = None

    def change(self, deltas: Sequence[TableDelta]) -> None:
        for delta in deltas:
            table = delta.tables[self._group]
            for column, blocks in self._blocks.items():
                if delta.start <= column < delta.start + len(table):
                    blocks[delta.row] = table[column - delta.start]
                    self._answer = None

    def are_worth_it(self, rows: Sequence[int]) -> bool:
        if self._answer is None or self._answer[0] != rows:
            self._answer = (rows, self._most_saved(rows) >= self._least_saved)
        return self._answer[1]

    def _most_saved(self, rows: Sequence[int]) -> int:
        """Bytes a layer, by the depth that saves the most."""
        most = 0
        for column, depth in self._columns.items():
            blocks = self._blocks[column]
            counts = Counter(blocks[row] for row in rows)
            del counts[0]
            saved = sum(count - 1 for count in counts.values() if count >= FEWEST)
            most = max(most, saved * depth * self._bytes_per_position)
        return most
