"""RowShape: the sizes of what a device knows about running sequences. Plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowShape:
    """Of `count` sequences, and a spare one behind them."""

    count: int
    max_len: int
    block_size: int
    lookahead: int = 0
    """Tokens behind the longest sequence that may be computed in vain: drafts."""

    @property
    def rows(self) -> int:
        return self.count + 1

    @property
    def tokens(self) -> tuple[int, int]:
        """As many drafts again may stand behind the last that is computed."""
        return self.rows, self.max_len + 1 + 2 * self.lookahead

    @property
    def table(self) -> tuple[int, int]:
        """The last block, and the first drafts, may reach past the longest sequence."""
        return self.rows, -(-(self.max_len + self.lookahead) // self.block_size) + 2
