"""Metrics of a router: what any front counts of HTTP, and which members got, lost and took over what."""

from collections.abc import Collection, Iterable, Mapping

from quire.observe import catalog
from quire.observe.figures import Labels, Samples, bounded
from quire.observe.front_metrics import FrontMetrics
from quire.observe.histogram import Histogram

_STATES = ("ready", "busy", "draining", "lost", "unknown")
"""Told even where no member is in it, so that an alert can compare it with 0."""


class RouterMetrics:
    """`routes` are the templates that may become a label. Lives on the event loop."""

    def __init__(self, routes: Collection[str] = ()) -> None:
        self._front = FrontMetrics(routes)
        self._counts: dict[catalog.Metric, dict[Labels, float]] = {
            metric: {} for metric in (catalog.RELAYED, catalog.RETRIED, catalog.RESUMED)
        }
        self._seconds = Histogram.over(catalog.MEMBER_SECONDS.buckets)

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._front.http(route, method, status, seconds)

    def refused(self, reason: str) -> None:
        """A request was turned away."""
        self._front.refused(reason)

    def connections(self, count: int) -> None:
        """How many client connections are open."""
        self._front.connections = count

    def relayed(self, member: int, seconds: float) -> None:
        """A member began to answer, so long after the request had come."""
        self._count(catalog.RELAYED, member)
        self._seconds.observe(catalog.MEMBER_SECONDS.buckets, seconds)

    def retried(self, member: int) -> None:
        """A member failed before anything of its answer was sent."""
        self._count(catalog.RETRIED, member)

    def resumed(self, member: int) -> None:
        """A member was lost in the middle of an answer."""
        self._count(catalog.RESUMED, member)

    def total(self, metric: catalog.Metric) -> int:
        """Of all members."""
        return int(sum(self._counts[metric].values()))

    def render(
        self, accept: str, states: Iterable[str], loads: Mapping[int, int], running: Mapping[int, int]
    ) -> tuple[bytes, str]:
        """Everything as text with its content type; `states` are those of the members, the rest is by their numbers."""
        from quire.observe.exposition import written_out  # its library takes time to import

        by_state: dict[Labels, float] = {(state,): 0 for state in _STATES}
        for state in states:
            by_state[state,] = by_state.get((state,), 0) + 1
        numbers: dict[str, dict[Labels, float]] = {metric.name: rows.copy() for metric, rows in self._counts.items()}
        numbers[catalog.MEMBERS.name] = by_state
        numbers[catalog.MEMBER_LOAD.name] = {(str(number),): load for number, load in loads.items()}
        numbers[catalog.MEMBER_RUNNING.name] = {(str(number),): count for number, count in running.items()}
        own = Samples(numbers, {catalog.MEMBER_SECONDS.name: {(): self._seconds.copy()}})
        return written_out(self._front.samples() | own, "", accept)

    def _count(self, metric: catalog.Metric, member: int) -> None:
        rows = self._counts[metric]
        labels = bounded(metric, rows, (str(member),))
        rows[labels] = rows.get(labels, 0) + 1
