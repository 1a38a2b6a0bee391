"""LoRA adapters of a model that is spread over ranks: each rank reads and places its own part, and what is asked of
all is done when the last has done it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from quire.core.adapter import AdapterRef
from quire.executor.base import HostedAdapter
from quire.executor.rank_messages import AdapterDone, FetchAdapter, PlaceAdapter, frame

if TYPE_CHECKING:
    from quire.executor.inline import InlineExecutor
    from quire.executor.other_rank import OtherRank
    from quire.worker.adapter_store import AdapterStore

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SpreadAdapter:
    """An adapter of which every rank has its part in host memory."""

    ref: AdapterRef
    first: HostedAdapter
    """The first rank's part; all have as many pages."""

    @property
    def num_pages(self) -> int:
        return self.first.num_pages


class RankAdapters:
    """Seen from the first rank."""

    def __init__(
        self, first: "InlineExecutor", others: Sequence["OtherRank"], tell_others: Callable[[bytes], None]
    ) -> None:
        self._first = first
        self._others = others
        self._tell_others = tell_others
        self._numbers = count(1)

    def fetch(self, ref: AdapterRef) -> "Future[SpreadAdapter]":
        number, own = next(self._numbers), self._first.fetch_adapter(ref)
        others = [other.expect(number) for other in self._others]
        self._tell_others(frame(FetchAdapter(number, ref)))
        return all_done(own, others, lambda hosted: SpreadAdapter(ref, hosted))

    def place(self, adapter: HostedAdapter, slot: int, pages: list[int]) -> "Future[None]":
        assert isinstance(adapter, SpreadAdapter)
        number = next(self._numbers)
        others = [other.expect(number) for other in self._others]
        self._tell_others(frame(PlaceAdapter(number, adapter.ref, slot, pages)))
        own = self._first.place_adapter(adapter.first, slot, pages)
        return all_done(own, others, lambda placed: placed)


class AdapterErrands:
    """In the process of another rank: does what the first one asks for, beside the steps, and says when it is done."""

    def __init__(self, store: "AdapterStore", say: Callable[[AdapterDone], None]) -> None:
        self._store = store
        self._say = say

    def run(self, errand: FetchAdapter | PlaceAdapter) -> None:
        fetched = self._store.fetch(errand.ref)
        if isinstance(errand, FetchAdapter):
            fetched.add_done_callback(lambda done: self._tell(errand.number, done))
        else:
            fetched.add_done_callback(lambda done: self._place(errand, done))

    def _place(self, errand: PlaceAdapter, fetched: "Future[Any]") -> None:
        if fetched.exception() is not None:
            self._tell(errand.number, fetched)
            return
        placed = self._store.place(fetched.result(), errand.slot, errand.pages)
        placed.add_done_callback(lambda done: self._tell(errand.number, done))

    def _tell(self, number: int, done: "Future[Any]") -> None:
        error = done.exception()
        with suppress(OSError):  # the first rank is gone, and this one about to end
            self._say(AdapterDone(number, None if error is None else str(error)))


def all_done(own: "Future[Any]", others: Sequence["Future[None]"], make: Callable[[Any], Result]) -> "Future[Result]":
    """What is made of the first rank's result once all ranks are done; otherwise what went wrong, at the first rank if
    it went wrong there too."""
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
            joined.set_result(make(own.result()))
        else:
            joined.set_exception(error)

    for each in every:
        each.add_done_callback(note)
    return joined
