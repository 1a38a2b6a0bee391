"""Errands: what all ranks of a model do beside the steps, each for itself; an errand is done when the last has done it.

They are numbered, so that a rank's answer finds whoever waits for it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from quire.executor.rank_messages import Command, frame

if TYPE_CHECKING:
    from quire.executor.other_rank import OtherRank

Result = TypeVar("Result")


class RankErrands:
    """Seen from the first rank, which asks the others."""

    def __init__(self, others: Sequence["OtherRank"], tell_others: Callable[[bytes], None]) -> None:
        self._others = others
        self._tell_others = tell_others
        self._numbers = count(1)

    def ask(self, make: Callable[[int], Command]) -> list["Future[Any]"]:
        """Give all of them the errand that is made of a number; by rank, what will come of it."""
        number = next(self._numbers)
        awaited = [other.expect(number) for other in self._others]
        self._tell_others(frame(make(number)))
        return awaited


def all_done(own: "Future[Any]", others: Sequence["Future[Any]"], make: Callable[[], Result]) -> "Future[Result]":
    """What is made once all ranks are done; otherwise what went wrong, at the first rank if it went wrong there too."""
    joined: Future[Result] = Future()
    every, lock, left = [own, *others], Lock(), 1 + len(others)

    def note(_: "Future[Any]") -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        error = next((found for each in every if (found := each.exception()) is not None), None)
        if error is None:
            joined.set_result(make())
        else:
            joined.set_exception(error)

    for each in every:
        each.add_done_callback(note)
    return joined
