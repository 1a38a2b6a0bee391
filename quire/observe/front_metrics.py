"""Metrics of the front's own process: HTTP, refusals, connections, slow readers, memory. Every label is bounded."""

from collections.abc import Collection, Iterable, Iterator
from os import sysconf
from pathlib import Path

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from quire.observe import catalog
from quire.observe.families import BoundedLabel, histograms, numbers
from quire.observe.histogram import Histogram

_METHODS = frozenset({"GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "WEBSOCKET"})
_STATUSES = range(100, 600)
_MAX_REASONS = 32


class FrontMetrics(Collector):
    """`routes` are the templates that may become a label; every other path is `other`."""

    def __init__(self, model: str, routes: Collection[str]) -> None:
        self._model = model
        self._routes = frozenset(routes)
        self._requests: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._reasons = BoundedLabel(_MAX_REASONS)
        self._refused: dict[str, int] = {}
        self.connections = 0
        self.readers_paused = 0
        self.readers_dropped = 0

    def add_routes(self, routes: Iterable[str]) -> None:
        self._routes = self._routes.union(routes)

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        handler = route if route in self._routes else BoundedLabel.OTHER
        verb = method if method in _METHODS else BoundedLabel.OTHER
        key = (handler, verb, str(status) if status in _STATUSES else BoundedLabel.OTHER)
        self._requests[key] = self._requests.get(key, 0) + 1
        histogram = self._seconds.get(key[:2])
        if histogram is None:
            histogram = self._seconds[key[:2]] = Histogram(catalog.HTTP_SECONDS.buckets)
        histogram.observe(seconds)

    def refused(self, reason: str) -> None:
        label = self._reasons(reason)
        self._refused[label] = self._refused.get(label, 0) + 1

    def collect(self) -> Iterator[Family]:
        """What prometheus_client calls to read everything."""
        yield numbers(catalog.HTTP_REQUESTS, self._model, self._requests.items())
        yield histograms(catalog.HTTP_SECONDS, self._model, self._seconds.items())
        yield numbers(catalog.REFUSED, self._model, [((reason,), count) for reason, count in self._refused.items()])
        yield numbers(catalog.CONNECTIONS, self._model, [((), self.connections)])
        yield numbers(catalog.READERS_PAUSED, self._model, [((), self.readers_paused)])
        yield numbers(catalog.READERS_DROPPED, self._model, [((), self.readers_dropped)])
        yield numbers(catalog.FRONT_MEMORY, self._model, [((), resident_memory())])


def resident_memory() -> int:
    """Bytes of this process in memory; 0 where the system does not say (only Linux has /proc)."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * sysconf("SC_PAGE_SIZE")
