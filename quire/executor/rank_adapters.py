"""LoRA adapters of a model that is spread over ranks: each rank reads and places its own part, and what is asked of
all is done when the last has done it."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quire.core.adapter import AdapterRef
from quire.executor.base import HostedAdapter
from quire.executor.rank_errands import RankErrands, all_done
from quire.executor.rank_messages import ErrandDone, FetchAdapter, PlaceAdapter

if TYPE_CHECKING:
    from quire.executor.inline import InlineExecutor
    from quire.worker.adapter_store import AdapterStore


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

    def __init__(self, first: "InlineExecutor", errands: RankErrands) -> None:
        self._first = first
        self._errands = errands

    def fetch(self, ref: AdapterRef) -> "Future[SpreadAdapter]":
        own = self._first.fetch_adapter(ref)
        others = self._errands.ask(lambda number: FetchAdapter(number, ref))
        return all_done(own, others, lambda: SpreadAdapter(ref, own.result()))

    def place(self, adapter: HostedAdapter, slot: int, pages: list[int]) -> "Future[None]":
        assert isinstance(adapter, SpreadAdapter)
        others = self._errands.ask(lambda number: PlaceAdapter(number, adapter.ref, slot, pages))
        return all_done(self._first.place_adapter(adapter.first, slot, pages), others, lambda: None)


class AdapterErrands:
    """In the process of another rank: does what the first one asks for, beside the steps, and says when it is done."""

    def __init__(self, store: "AdapterStore", say: Callable[[ErrandDone], None]) -> None:
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
            self._say(ErrandDone(number, None if error is None else str(error)))
