"""KVExchange: KV goes to other engines that ask for it, and requests wait outside every step for KV from there.

Runs in the engine's thread, between steps. What has come is in the prefix cache when the request is scheduled, so that
nobody else needs to know of it; what does not come, or not soon enough, is computed.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeVar

from quire.config.resolved import PreemptionCosts
from quire.core.request import Request
from quire.core.sequence import Sequence
from quire.engine.loop import StepFigures
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.transfer.fetcher import Fetch, KVFetcher
from quire.kvcache.transfer.sender import KVSender, OpenWant
from quire.scheduler.scheduler import HEADROOM, Scheduler

MOST_IN_TRANSIT = 4
"""One block in so many may wait for its bytes: the others are for sequences that run."""
_UNSEEN_SECONDS = 10.0
"""What another engine may ask for before the request that computes it has come here."""
_MOST_ENDED = 4096
_LEAST_PATIENCE = 1.0
_MOST_PATIENCE = 30.0
_FIRST_RATE = 1e9
"""Bytes a second that a transfer is expected to reach, before there was one."""
_TRANSFER_OVERHEAD = 0.003
"""Seconds that a transfer takes beside its bytes."""
_NEWS_SHARE = 0.2
"""What the last prompt counts in the measured cost of a token."""
_MANY_TOKENS = 64
_Item = TypeVar("_Item")
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Pull:
    """What one request is to find here when it comes."""

    request_id: str
    address: str
    entries: list[CachedBlock]
    num_tokens: int
    until: str
    ready: "Future[None]" = field(default_factory=Future)
    fetch: Fetch | None = None
    """None while there is no room for it."""
    num_open: int = 0
    num_come: int = 0
    begun: float = field(default_factory=time.monotonic)
    moved: float = 0.0
    """When a request that waits for it came, or the last of its blocks."""
    is_awaited: bool = False


@dataclass(slots=True)
class ExchangeCounts:
    """Since the start."""

    declined: int = 0
    """Times computing was expected to be faster than fetching."""
    given_up: int = 0
    """Times a request went on without all that it had waited for."""


class KVExchange:
    """Of one engine."""

    def __init__(self, scheduler: Scheduler, sender: KVSender, fetcher: KVFetcher, costs: PreemptionCosts) -> None:
        self.sender = sender
        self.fetcher = fetcher
        self.counts = ExchangeCounts()
        self._scheduler = scheduler
        self._kv = scheduler.kv
        self._seconds_per_token = costs.seconds_per_token
        self._seen_step = 0
        self._wants: list[OpenWant] = []
        self._ended: OrderedDict[str, None] = OrderedDict()
        """Requests that ended here lately, the last ones last."""
        self._pulls: dict[str, _Pull] = {}
        """By request, until all is there that will be."""
        self._left: list[_Pull] = []
        """Those that nobody waits for any more, until nobody writes to their blocks."""

    @property
    def holds_blocks(self) -> bool:
        """Whether KV is on its way to or from another engine."""
        return bool(self._kv.transit.held)

    @property
    def stays_awake(self) -> bool:
        """Whether others may read its memory at any time, so that it cannot be given back."""
        return self.fetcher.nixl is not None

    @property
    def num_fetching(self) -> int:
        """Requests whose KV is on its way."""
        return len(self._pulls)

    # -- requests ----------------------------------------------------------------------------------------------

    def pull(self, request: Request, address: str, is_computing: bool) -> None:
        """Fetch what is missing of a request's prompt from the engine at an address, which has it or computes it."""
        entries, num_tokens = self._missing(request, is_computing)
        if not entries or request.id in self._pulls:
            return
        if not is_computing and not self._is_cheaper(len(entries), num_tokens):
            self.counts.declined += 1
            return
        until = request.id if is_computing else ""
        self._pulls[request.id] = pull = _Pull(request.id, address, entries, num_tokens, until)
        self._begin(pull)

    def begin(self, request: Request) -> "Future[None] | None":
        """What a request has to wait for; None where nothing is on its way for it."""
        self._take_events()
        pull = self._pulls.get(request.id)
        if pull is None:
            return None
        pull.is_awaited, pull.moved = True, time.monotonic()
        return pull.ready

    def ended(self, sequences: Iterable[Sequence]) -> None:
        """These have ended: nobody has to wait for more of them."""
        for seq in sequences:
            self._ended[seq.request.id] = None
            self._ended.move_to_end(seq.request.id)
        while len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)

    def advance(self, figures: StepFigures) -> None:
        """Before and after every step: let go what was asked for, and take in what has come."""
        self._learn(figures)
        self._take_back()
        if self._pulls or self._left:
            self._take_events()
            self._look_after_pulls()
        self._open_wants()
        if self._wants:
            self._wants = [want for want in self._wants if not self._serve(want)]

    def close(self) -> None:
        self.sender.close()
        self.fetcher.close()
        if self.fetcher.nixl is not None:
            self.fetcher.nixl.close()

    # -- in ----------------------------------------------------------------------------------------------------

    def _missing(self, request: Request, is_computing: bool) -> tuple[list[CachedBlock], int]:
        """Entries without blocks, and the tokens that they stand for."""
        emitted = request.resume[0].tokens if request.resume else ()
        # behind what another engine computes there will be a token: of its own the last prompt token need not be left
        seq = Sequence(-1, request, 0, 0, (*emitted, 0) if is_computing else emitted)
        table = self._kv.name_blocks(seq)
        if not table.caches or not table.names:
            return [], 0
        entries = self._kv.transit.missing(table, seq.tokens, len(table.names))
        return entries, len({entry.name for entry in entries}) * self._kv.block_size

    def _is_cheaper(self, num_blocks: int, num_tokens: int) -> bool:
        """Whether fetching should take less time than computing, as both went lately."""
        counts = self.fetcher.counts
        rate = counts.bytes / counts.seconds if counts.seconds else _FIRST_RATE
        transfer = _TRANSFER_OVERHEAD + num_blocks * self.fetcher.blocks.block_bytes / rate
        return transfer < num_tokens * self._seconds_per_token

    def _begin(self, pull: _Pull) -> None:
        """Where there is room for it; else it waits for some."""
        count, kv = len(pull.entries), self._kv
        reserve = kv.device.pool.num_blocks // HEADROOM if self._scheduler.running else 0
        incoming = sum(each.num_open for each in (*self._pulls.values(), *self._left))
        is_alone = not incoming
        fits = is_alone or incoming + count <= kv.device.pool.num_blocks // MOST_IN_TRANSIT
        if not fits or kv.num_free - count < reserve:
            return
        kv.transit.expect(pull.entries)
        pull.num_open = count
        pull.fetch = self.fetcher.fetch(pull.address, pull.entries, pull.until)

    def _take_events(self) -> None:
        for pull in [*self._pulls.values(), *self._left]:
            if pull.fetch is None:
                continue
            for entry, has_come in _all_of(pull.fetch.events):
                pull.num_open -= 1
                if has_come:
                    self._kv.transit.arrived(entry)
                    pull.num_come += 1
                else:
                    self._kv.transit.lost(entry)
                pull.moved = time.monotonic()
            if not pull.num_open:
                self._settle(pull)

    def _settle(self, pull: _Pull) -> None:
        if pull in self._left:
            self._left.remove(pull)
            return
        del self._pulls[pull.request_id]
        pull.ready.set_result(None)
        _log.debug(
            "request %s: %d of %d blocks came from %s in %.0f ms",
            *(pull.request_id, pull.num_come, len(pull.entries), pull.address, 1e3 * (time.monotonic() - pull.begun)),
        )

    def _look_after_pulls(self) -> None:
        now = time.monotonic()
        for pull in list(self._pulls.values()):
            if pull.fetch is None:
                self._begin(pull)
            patience = _MOST_PATIENCE if pull.fetch is None else self._patience(pull)
            if pull.is_awaited and now - pull.moved > patience:
                self._give_up(pull)

    def _patience(self, pull: _Pull) -> float:
        """Seconds without news after which computing would have been faster."""
        return min(_MOST_PATIENCE, max(_LEAST_PATIENCE, pull.num_tokens * self._seconds_per_token))

    def _give_up(self, pull: _Pull) -> None:
        """Its request goes on with what there is."""
        self.counts.given_up += 1
        del self._pulls[pull.request_id]
        pull.ready.set_result(None)
        if pull.fetch is not None:
            self._left.append(pull)
            self.fetcher.abandon(pull.fetch)
        _log.warning(
            "request %s goes on with %d of %d blocks from %s: the others do not come",
            *(pull.request_id, pull.num_come, len(pull.entries), pull.address),
        )

    def _learn(self, figures: StepFigures) -> None:
        """What a token of a prompt costs, from steps that consist of little else."""
        if figures.step == self._seen_step or figures.tokens < max(_MANY_TOKENS, 4 * figures.sequences):
            return
        self._seen_step = figures.step
        self._seconds_per_token += _NEWS_SHARE * (figures.seconds / figures.tokens - self._seconds_per_token)

    # -- out ---------------------------------------------------------------------------------------------------

    def _take_back(self) -> None:
        for blocks in _all_of(self.sender.returned):
            self._kv.transit.give_back(blocks)

    def _open_wants(self) -> None:
        self._wants += _all_of(self.sender.wants)

    def _serve(self, opened: OpenWant) -> bool:
        """Send what is there of a want, in order; whether that was all."""
        if opened.is_cancelled:
            opened.done()
            return True
        is_over, settled = self._is_over(opened), self._scheduler.settled_step
        want, windows = opened.want, [group.window for group in self._kv.groups]
        places: list[int] = []
        blocks: list[int] = []
        while opened.num_sent < len(want.names):
            place = opened.num_sent
            group = want.groups[place]
            block = self._kv.transit.lend(group, want.names[place], settled) if group < len(windows) else None
            if block is not None:
                places.append(place)
                blocks.append(block)
            elif not is_over:
                break
            elif windows[group] is None:  # behind a gap nothing is of use
                opened.num_sent = len(want.names)
                break
            opened.num_sent += 1
        if places:
            opened.send(places, blocks)
        if opened.num_sent < len(want.names):
            return False
        opened.done()
        return True

    def _is_over(self, opened: OpenWant) -> bool:
        """Whether nothing more of what was asked for will be computed here."""
        request_id = opened.want.until
        if not request_id:
            return True
        if self._scheduler.sequences_of(request_id):
            opened.was_seen = True
            return False
        return opened.was_seen or request_id in self._ended or time.monotonic() - opened.asked > _UNSEEN_SECONDS


def _all_of(queue: "SimpleQueue[_Item]") -> list[_Item]:
    items: list[_Item] = []
    try:
        while True:
            items.append(queue.get_nowait())
    except Empty:
        return items
