"""Metrics: plain numbers about everything that the front sees; answers /metrics and gives /stats its rates.

It lives on the front's event loop and takes no locks. Where a server has several fronts, each has its own, and the
parent of them all has one too, for engines; what they render is the sum.
"""

from collections.abc import Callable, Collection, Iterable
from time import monotonic
from typing import Any

from quire.core.stats import EngineStats, FinishedRequest
from quire.observe import catalog
from quire.observe.engine_metrics import EngineMetrics
from quire.observe.engine_rates import EngineRates
from quire.observe.figures import FrontFigures, Samples
from quire.observe.front_metrics import FrontMetrics
from quire.observe.rates import Rates
from quire.observe.request_metrics import RequestMetrics


class Metrics:
    """`routes` are the route templates that may appear as labels; paths outside them are counted together."""

    def __init__(
        self,
        model_name: str = "",
        replicas: int = 1,
        routes: Collection[str] = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._model = model_name
        self._engine_rates = EngineRates(clock)
        self._engines = EngineMetrics(replicas, self._engine_rates)
        self._requests = RequestMetrics(replicas)
        self._front = FrontMetrics(routes)
        self._rates = Rates(clock)
        self._fronts = Samples()

    def engine(self, replica: int, stats: EngineStats) -> None:
        """An engine after a step, or while idle."""
        self._engines.step(replica, stats)

    def engine_lost(self, replica: int, reason: str, *, given_up: bool = False) -> None:
        """An engine died or did not start, `given_up` if too often in a row; `reason` is one of a few words."""
        self._engines.lost(replica, reason, given_up=given_up)

    def first_token(self, replica: int, seconds: float, prompt_tokens: int, count: int = 1) -> None:
        """A request's first tokens, `seconds` after its arrival; once a request."""
        self._requests.first_token(replica, seconds, prompt_tokens, count)
        self._rates.first_token(seconds, prompt_tokens, count)

    def tokens(self, replica: int, seconds_since_last: float | None, count: int) -> None:
        """More tokens of a sequence, `seconds_since_last` after those before; None where it had none before."""
        if count <= 0:
            return
        each = None if seconds_since_last is None else max(seconds_since_last, 0.0) / count
        self._requests.tokens(replica, each, count)
        self._rates.tokens(each, count)

    def request_finished(self, record: FinishedRequest) -> None:
        """A request has ended, for whatever reason."""
        self._requests.finished(record)
        self._rates.finished(record.reason == "error")

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        """An HTTP request was answered; `route` is its template, such as /v1/files/{file_id}."""
        self._front.http(route, method, status, seconds)

    def add_routes(self, routes: Iterable[str]) -> None:
        """More templates that may appear as labels."""
        self._front.add_routes(routes)

    def refused(self, reason: str) -> None:
        """A request was turned away; `reason` is one of a few words, such as `overloaded` or `key`."""
        self._front.refused(reason)
        self._rates.refused()

    def ignored(self, field: str) -> None:
        """A request has a field that changes no answer."""
        self._front.ignored(field)

    def connections(self, count: int) -> None:
        """How many client connections are open."""
        self._front.connections = count

    def slow_reader_paused(self) -> None:
        """A sequence is held because its client reads too slowly."""
        self._front.readers_paused += 1

    def slow_reader_dropped(self) -> None:
        """A client was dropped because it stopped reading."""
        self._front.readers_dropped += 1

    def fronts(self, serving: int, lost: int) -> None:
        """How many front processes serve and how many have died; said where one process looks after several."""
        self._fronts = Samples({catalog.FRONTS.name: {(): serving}, catalog.FRONTS_LOST.name: {(): lost}})

    def figures(self) -> FrontFigures:
        """A copy of what this front has counted."""
        return FrontFigures(self._requests.samples() | self._front.samples(), self._rates.window())

    def engine_figures(self) -> Samples:
        """A copy of what engines have told, and of what `fronts` was told."""
        return self._engines.samples() | self._fronts

    def render(
        self,
        accept: str = "",
        figures: FrontFigures | None = None,
        engines: Samples | None = None,
        *,
        vllm_names: bool = False,
    ) -> tuple[bytes, str]:
        """Everything as text with its content type: OpenMetrics if the Accept header asks for it.

        `figures` of all fronts and `engines` as their parent knows them take the place of what this one knows.
        `vllm_names`: what vLLM measures too is told under its names as well.
        """
        from quire.observe.exposition import (
            written_out,
        )  # its library takes time to import

        samples = (engines or self.engine_figures()) | (figures or self.figures()).samples
        return written_out(samples, self._model, accept, vllm_names=vllm_names)

    def snapshot(self, figures: FrontFigures | None = None) -> dict[str, Any]:
        """Rates of the last seconds, for /stats: its own, or those of `figures`; and what engines told."""
        rates = self._rates.snapshot(None if figures is None else figures.rates)
        return {**rates, "engines": self._engine_rates.snapshot()}
