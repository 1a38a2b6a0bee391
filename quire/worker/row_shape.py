"""RowShape: the sizes of what a device knows about running sequences. Plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowShape:
    """Of `count` sequences, and a spare one behind them."""

    count: int
    max_len: int
    block_size: int

    @property
    def rows(self) -> int:
        return self.count + 1

    @property
    def tokens(self) -> tuple[int, int]:
        return self.rows, self.max_len + 1

    @property
    def table(self) -> tuple[int, int]:
        """Lookahead may reach a block past the longest sequence."""
        return self.rows, -(-self.max_len // self.block_size) + 2
