"""What keeps something for each row of the device, from the admission of a sequence to its release."""

from collections.abc import Iterable
from typing import Protocol

from quire.core.plan import Admission


class RowFollower(Protocol):
    """It hears of every sequence that gets a row, and of every row that is given back."""

    def admit(self, admission: Admission) -> None: ...

    def release(self, row: int) -> None: ...

    def reset(self) -> None:
        """All rows are forgotten."""


class RowFollowers:
    """All of a worker's, told in one order."""

    def __init__(self, followers: Iterable[RowFollower | None]) -> None:
        """A worker lacks those that are None."""
        self._followers = [each for each in followers if each is not None]

    def admit(self, admission: Admission) -> None:
        for each in self._followers:
            each.admit(admission)

    def release(self, row: int) -> None:
        for each in self._followers:
            each.release(row)

    def reset(self) -> None:
        for each in self._followers:
            each.reset()
