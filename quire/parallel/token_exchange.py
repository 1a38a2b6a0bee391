"""TokenExchange: how tokens come to experts and back, where every rank attends to sequences of its own.

All ranks' tokens are gathered on each, which computes those that chose experts of its own; of the sums over ranks, each
takes its own tokens'. In few tokens that is less to wait for than sending every token where it is wanted.
"""

from collections.abc import Sequence

from torch import Tensor

from quire.parallel.group import Group


class TokenExchange:
    """One rank's view. In every layer with experts all ranks take part once, also one without tokens of its own."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._counts: Sequence[int] = [0] * group.size

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    def begin(self, counts: Sequence[int]) -> None:
        """A step follows in which each rank has so many tokens."""
        assert len(counts) == self._group.size, f"{len(counts)} counts of {self._group.size} ranks"
        self._counts = counts

    def gather(self, x: Tensor) -> Tensor:
        """[tokens of this rank, hidden] to [tokens of all, hidden]."""
        return self._group.gather_rows(x, self._counts)

    def give_back(self, partial: Tensor) -> Tensor:
        """What this rank's experts add to all tokens, to what all ranks' add to its own."""
        return self._group.sum_rows(partial, self._counts)

    def abandon(self) -> None:
        """As a Group's."""
        self._group.abandon()

    def close(self) -> None:
        """As a Group's."""
        self._group.close()
