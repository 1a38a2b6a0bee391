"""Dispatcher: gives every request to an engine, passes on what the engine says, and moves it when the engine is lost.

Owns the journal. Knows engines only as clients: where they run and who starts them is not its business.
"""

import logging
import time
from collections.abc import Callable

from quire.config.server import RoutingStrategy
from quire.core.errors import QuireError, RequestFailed
from quire.core.request import Request
from quire.core.status import Status
from quire.serving.board import Board
from quire.serving.client import EngineClient
from quire.serving.journal import Entry, Journal
from quire.serving.messages import End, Hold, Pull, Report, Resume, Submit, ToEngine
from quire.serving.placement import Placement, first_token_only
from quire.serving.quarantine import Quarantine

_log = logging.getLogger(__name__)


class Dispatcher:
    """Every request that is taken in ends exactly once, whatever becomes of engines."""

    def __init__(
        self,
        ready: Callable[[], list[EngineClient]],
        strategy: RoutingStrategy = "prefix",
        board: Board | None = None,
    ) -> None:
        """`ready` names the engines that take requests now; `strategy` chooses between them."""
        self.journal = Journal(board)
        self._ready = ready
        self._placement = Placement(strategy)
        self._quarantine = Quarantine()

    # -- requests ----------------------------------------------------------------------------------------------

    def submit(self, entry: Entry) -> None:
        """Take in a request; its listener hears of all that becomes of it."""
        self.journal.open(entry)
        self._place(entry)

    def end(self, entry: Entry, index: int | None = None, status: Status = Status.ABORTED) -> None:
        """A sequence, or the whole request, is not wanted any more."""
        for each in list(entry.emitted) if index is None else [index]:
            entry.emitted.pop(each, None)
        self._send(entry, End(entry.request.id, index, status))
        self._forget_if_over(entry)

    def hold(self, entry: Entry) -> None:
        """Its reader is slow."""
        entry.is_held = True
        self._send(entry, Hold(entry.request.id))

    def resume(self, entry: Entry) -> None:
        """The reader caught up."""
        entry.is_held = False
        self._send(entry, Resume(entry.request.id))

    def fail_all(self, error: QuireError) -> None:
        """No engine will complete what is live."""
        for entry in self.journal.entries():
            self._fail(entry, error)

    # -- engines -----------------------------------------------------------------------------------------------

    def engine_ready(self) -> None:
        """An engine takes requests: those that wait for one are placed."""
        for entry in self.journal.entries():
            if entry.client is None:
                self._place(entry)

    def report(self, report: Report) -> None:
        """An engine has stepped, or is idle."""
        for request_id in report.accepted:
            entry = self.journal.get(request_id)
            if entry is not None and not entry.is_accepted:
                entry.is_accepted = True
                entry.listener.accepted()
        for refusal in report.refused:
            entry = self.journal.get(refusal.request_id)
            if entry is not None:
                self.journal.close(entry)
                entry.listener.refused(refusal)
        for prompt in report.prompts:
            entry = self.journal.get(prompt.request_id)
            if entry is not None:
                entry.listener.prompt_news(prompt)
        for news in report.sequences:
            entry = self.journal.get(news.request_id)
            if entry is None:
                continue
            told = entry.without_end_of_prefill(news) if entry.is_prefill else news
            if entry.take(told):
                self.journal.begin(entry)
                entry.listener.news(told)
                self._forget_if_over(entry)
                if entry.is_prefilled and not entry.is_over:
                    self._hand_over(entry)
        if self._quarantine.is_on and self._quarantine.cleared():
            self.engine_ready()

    def engine_lost(self, client: EngineClient) -> None:
        """Its requests go on elsewhere, from where they stand."""
        orphans = self.journal.on_client(client)
        self._placement.forget(client)
        for entry in self.journal.entries():
            if entry.decoder is client:
                entry.decoder = None
        for entry in orphans:
            entry.losses += 1
            entry.moves += 1
            entry.client = None
        culprit = self._quarantine.engine_lost(orphans)
        if culprit is not None:
            _log.error("request %s was alone with an engine that was lost, and fails", culprit.request.id)
            self._fail(culprit, RequestFailed(f"the engine is lost whenever it computes request {culprit.request.id}"))
        for entry in orphans:
            if not entry.is_over:
                self._place(entry)

    # -- inside ------------------------------------------------------------------------------------------------

    def _place(self, entry: Entry) -> None:
        """Give a request to an engine, or leave it for the first that becomes ready."""
        ready = self._ready()
        if not ready or self._quarantine.keeps_waiting(entry):
            return
        placed = self._placement.place(entry, ready, self.journal)
        entry.decoder, entry.is_prefill = placed.decoder, placed.decoder is not None
        entry.prefilled.clear()
        if placed.holder is not None:
            placed.client.send(Pull(entry.to_submit(), placed.holder.kv_address))
        request = entry.to_submit()
        self._give(entry, placed.client, first_token_only(request) if entry.is_prefill else request)
        if placed.decoder is not None:
            placed.decoder.send(Pull(request, placed.client.kv_address, is_computing=True))

    def _hand_over(self, entry: Entry) -> None:
        """The prompt is computed: the engine that was chosen goes on, or, where that is lost, another one."""
        source, decoder = entry.client, entry.decoder
        entry.decoder, entry.is_prefill = None, False
        entry.handovers += 1
        if decoder is None:
            ready = self._ready()
            if not ready:
                entry.client = None
                return
            decoder = self._placement.choose_decoder(entry.request, ready, self.journal)
            if source is not None and source is not decoder and source.kv_address and decoder.kv_address:
                decoder.send(Pull(entry.to_submit(), source.kv_address, is_computing=True))
        self._give(entry, decoder, entry.to_submit())

    def _give(self, entry: Entry, client: EngineClient, request: Request) -> None:
        entry.client = client
        # an age, not a clock: the engine may run on another host
        self._send(entry, Submit(request, time.monotonic() - entry.request.arrival))
        if entry.is_held:
            self._send(entry, Hold(entry.request.id))

    def _send(self, entry: Entry, message: ToEngine) -> None:
        if entry.client is not None:
            entry.client.send(message)

    def _fail(self, entry: Entry, error: QuireError) -> None:
        entry.emitted.clear()
        self.journal.close(entry)
        entry.listener.lost(error)

    def _forget_if_over(self, entry: Entry) -> None:
        if entry.is_over:
            self.journal.close(entry)
