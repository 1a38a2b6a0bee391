"""Preparing: requests whose grammars are still being compiled wait for them outside every step."""

from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.request import Request
from quire.core.status import Status
from quire.engine.holds import Holds
from quire.sampling.grammar.cache import GrammarCache
from quire.scheduler.scheduler import Scheduler

GRAMMAR = "grammar"
"""The reason for which such requests are held."""
_MOMENT = 0.005
"""Seconds that an engine with nothing else to do waits before it looks for messages again."""


class Preparing:
    """The waiting requests of one engine."""

    def __init__(self, scheduler: Scheduler, holds: Holds, grammar_cache: GrammarCache | None) -> None:
        self._scheduler = scheduler
        self._holds = holds
        self._grammar_cache = grammar_cache
        self._waiting: dict[str, Future[Any]] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def begin(self, request: Request) -> "Future[Any] | None":
        """Start to compile the grammar of a request; None if it has none. Raises what is known to be wrong with it."""
        structured = request.params.structured
        if structured is None:
            return None
        if self._grammar_cache is None:
            raise InvalidRequest("structured is set, but this engine has no grammars; leave it out", field="structured")
        compiling = self._grammar_cache.prepare(structured)
        if not compiling.done():
            return compiling
        error = compiling.exception()
        if error is not None:
            raise InvalidRequest(str(error), field="structured")
        return None

    def wait_for(self, request: Request, compiling: "Future[Any] | None") -> None:
        """Keep an accepted request out of every step until its grammar is there."""
        if compiling is not None:
            self._waiting[request.id] = compiling
            self._holds.hold(request.id, GRAMMAR)

    def resume(self) -> None:
        """Those that are ready may run; one whose grammar cannot be compiled after all fails, with the reason."""
        if not self._waiting:
            return
        if not self._scheduler.can_advance:
            wait(self._waiting.values(), timeout=_MOMENT, return_when=FIRST_COMPLETED)
        for request_id, compiling in [each for each in self._waiting.items() if each[1].done()]:
            del self._waiting[request_id]
            error = compiling.exception()
            if error is None:
                self._holds.resume(request_id, GRAMMAR)
                continue
            for seq in self._scheduler.sequences_of(request_id):
                seq.failure = str(error)
            self._scheduler.abort(request_id, Status.FAILED)
