"""Metrics of the front's own process: HTTP, refusals, connections, slow readers, memory. Every label is bounded."""

from collections.abc import Collection, Iterable

from quire.observe import catalog
from quire.observe.figures import Labels, Samples, bounded
from quire.observe.histogram import Histogram
from quire.observe.memory import resident_bytes

_METHODS = frozenset({"GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "WEBSOCKET"})
_STATUSES = range(100, 600)


class FrontMetrics:
    """`routes` are the templates that may become a label; every other path is `other`."""

    def __init__(self, routes: Collection[str]) -> None:
        self._routes = frozenset(routes)
        self._requests: dict[Labels, float] = {}
        self._seconds: dict[Labels, Histogram] = {}
        self._refused: dict[Labels, float] = {}
        self._ignored: dict[Labels, float] = {}
        self.connections = 0
        self.readers_paused = 0
        self.readers_dropped = 0

    def add_routes(self, routes: Iterable[str]) -> None:
        self._routes = self._routes.union(routes)

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        handler = route if route in self._routes else catalog.OTHER
        verb = method if method in _METHODS else catalog.OTHER
        key = (handler, verb, str(status) if status in _STATUSES else catalog.OTHER)
        self._requests[key] = self._requests.get(key, 0) + 1
        histogram = self._seconds.get(key[:2])
        if histogram is None:
            histogram = self._seconds[key[:2]] = Histogram.over(catalog.HTTP_SECONDS.buckets)
        histogram.observe(catalog.HTTP_SECONDS.buckets, seconds)

    def refused(self, reason: str) -> None:
        labels = bounded(catalog.REFUSED, self._refused, (reason,))
        self._refused[labels] = self._refused.get(labels, 0) + 1

    def ignored(self, field: str) -> None:
        labels = bounded(catalog.IGNORED, self._ignored, (field,))
        self._ignored[labels] = self._ignored.get(labels, 0) + 1

    def samples(self) -> Samples:
        """As it is now."""
        alone = {
            catalog.CONNECTIONS: self.connections,
            catalog.READERS_PAUSED: self.readers_paused,
            catalog.READERS_DROPPED: self.readers_dropped,
            catalog.FRONT_MEMORY: resident_bytes(),
        }
        numbers: dict[str, dict[Labels, float]] = {metric.name: {(): number} for metric, number in alone.items()}
        numbers[catalog.HTTP_REQUESTS.name] = self._requests.copy()
        numbers[catalog.REFUSED.name] = self._refused.copy()
        numbers[catalog.IGNORED.name] = self._ignored.copy()
        seconds = {labels: histogram.copy() for labels, histogram in self._seconds.items()}
        return Samples(numbers, {catalog.HTTP_SECONDS.name: seconds})
