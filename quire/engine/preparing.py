"""Preparing: requests wait outside every step for what they need first: a grammar, an adapter, or code that is not
loaded yet."""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from quire.core.errors import InvalidRequest
from quire.core.request import Request
from quire.core.status import Status
from quire.engine.adapter_loads import AdapterLoads
from quire.engine.holds import Holds
from quire.executor.base import Executor
from quire.executor.other_rank import RankLost
from quire.sampling.grammar.cache import GrammarCache
from quire.scheduler.base import StepScheduler

PREPARING = "preparing"
"""The reason for which such requests are held."""
_MOMENT = 0.005
"""Seconds that an engine with nothing else to do waits before it looks for messages again."""


class Preparing:
    """The waiting requests of one engine."""

    def __init__(
        self,
        scheduler: StepScheduler,
        holds: Holds,
        executor: Executor,
        grammar_cache: GrammarCache | None,
        adapters: AdapterLoads,
    ) -> None:
        self._scheduler = scheduler
        self._holds = holds
        self._executor = executor
        self._grammar_cache = grammar_cache
        self._adapters = adapters
        self._waiting: dict[str, list[Future[Any]]] = {}
        self.kv: Callable[[Request], Future[None] | None] = lambda request: None
        """What a request has to wait for because its KV is on its way from another engine."""

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def begin(self, request: Request) -> "list[Future[Any]]":
        """Start what a request needs first; raises what is known to be wrong."""
        found = (
            *(self._grammar(request), self._executor.prepare(request), self._adapters.begin(request)),
            self.kv(request),
        )
        return [each for each in found if each is not None]

    def _grammar(self, request: Request) -> "Future[Any] | None":
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

    def wait_for(self, request: Request, needed: "list[Future[Any]]") -> None:
        """Keep an accepted request out of every step until what it needs is there."""
        if needed:
            self._waiting[request.id] = needed
            self._holds.hold(request.id, PREPARING)

    def resume(self) -> None:
        """Those that are ready may run; one that cannot have what it needs after all fails, with the reason."""
        if not self._waiting:
            return
        if not self._scheduler.can_advance:
            pending = [each for needed in self._waiting.values() for each in needed if not each.done()]
            wait(pending, timeout=_MOMENT, return_when=FIRST_COMPLETED)
        ready = [each for each in self._waiting.items() if all(needed.done() for needed in each[1])]
        for request_id, needed in ready:
            del self._waiting[request_id]
            error = next((each.exception() for each in needed if each.exception() is not None), None)
            if error is None:
                self._holds.resume(request_id, PREPARING)
                continue
            if isinstance(error, RankLost):  # no fault of the request: it goes on in another engine
                raise error
            for seq in self._scheduler.sequences_of(request_id):
                seq.failure = str(error)
            self._scheduler.abort(request_id, Status.FAILED)
