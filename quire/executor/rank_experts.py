"""Copies of experts of a model that is spread over ranks: each rank reads those that are to be its own, and says how
often tokens chose each expert."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from quire.config.resolved import Resolved
from quire.core.plan import LayerCopies
from quire.executor.expert_balancer import CopyPlaces, ExpertBalancer, Loads
from quire.executor.rank_errands import RankErrands, all_done
from quire.executor.rank_messages import ErrandDone, FetchExperts, LoadTold, TellLoad

if TYPE_CHECKING:
    from quire.worker.expert_copies import ExpertCopies
    from quire.worker.stage_worker import StageWorker
    from quire.worker.start_rank import Rank
    from quire.worker.worker import Worker


class RankExperts:
    """Seen from the first rank."""

    def __init__(self, worker: "Worker", copies: "ExpertCopies", errands: RankErrands, *, in_stages: bool) -> None:
        """`worker` and `copies` are the first rank's; `in_stages`: whether others have other layers."""
        self._worker = worker
        self._copies = copies
        self._errands = errands
        self._in_stages = in_stages

    def loads(self) -> "Future[Loads]":
        """Of all layers, since the start."""
        # ranks that share layers route alike: only those of other stages know something new
        others = self._errands.ask(TellLoad) if self._in_stages else []
        own: Future[Loads] = Future()
        own.set_result(self._worker.measured_load())
        return all_done(own, others, lambda: _together([each.result() for each in (own, *others)]))

    def fetch(self, asked: LayerCopies) -> "Future[None]":
        """Done when every rank has read what is new to it."""
        own = self._copies.fetch(asked)
        return all_done(own, self._errands.ask(lambda number: FetchExperts(number, asked)), lambda: None)


class ExpertErrands:
    """In the process of another rank: does what the first one asks for, and says when it is done."""

    def __init__(self, worker: "Worker | StageWorker", say: Callable[[ErrandDone | LoadTold], None]) -> None:
        self._worker = worker
        self._say = say

    def run(self, errand: FetchExperts | TellLoad) -> None:
        if isinstance(errand, TellLoad):
            self._say(LoadTold(errand.number, self._worker.measured_load()))
            return
        assert self._worker.copies is not None, "the model was started without copies of experts"
        fetched = self._worker.copies.fetch(errand.copies)
        fetched.add_done_callback(lambda done: self._tell(errand.number, done))

    def _tell(self, number: int, done: "Future[None]") -> None:
        error = done.exception()
        with suppress(OSError):  # the first rank is gone, and this one about to end
            self._say(ErrandDone(number, None if error is None else str(error)))


def balance_experts(
    first: "Rank", errands: RankErrands, resolved: Resolved, max_in_flight: int
) -> ExpertBalancer | None:
    """What moves copies of experts between ranks, of which `first` is the first; None: there is no place for any."""
    worker = first.sampling_worker
    if worker.copies is None:
        return None
    experts = RankExperts(worker, worker.copies, errands, in_stages=first.peers.pipeline is not None)
    # by then the first rank has run the step before which copies changed last, however many are in flight
    interval = max(resolved.eplb_step_interval, max_in_flight + 1)
    places = CopyPlaces(resolved.expert_ranks, resolved.spare_experts, interval)
    return ExpertBalancer(places, experts.loads, experts.fetch)


def _together(loads: Sequence[Loads]) -> Loads:
    return {layer: row for each in loads for layer, row in each.items()}
