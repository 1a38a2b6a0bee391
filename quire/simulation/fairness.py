"""Fairness: what tenants are served while they compete, and how even that is."""

from collections.abc import Iterable

from quire.simulation.metrics import Metrics


class Contention:
    """Watches who has requests waiting, and counts service only while at least two tenants do.

    Service is tokens computed plus tokens sampled. A step costs it one addition a tenant, not one a sequence.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._backlog: dict[str, int] = {}
        self._decoding: dict[str, int] = {}

    def arrived(self, tenant: str) -> None:
        self._backlog[tenant] = self._backlog.get(tenant, 0) + 1

    def left_queue(self, tenant: str) -> None:
        """A request got its first row, or ended without one."""
        self._backlog[tenant] -= 1
        if not self._backlog[tenant]:
            del self._backlog[tenant]

    def decoding(self, tenant: str, change: int) -> None:
        """So many sequences more (or fewer) get a token every step."""
        self._decoding[tenant] = self._decoding.get(tenant, 0) + change

    def step(self, seconds: float, prompts: Iterable[tuple[str, int]]) -> None:
        """A step was planned, with these prompt tokens and a token for every decoding sequence."""
        if len(self._backlog) < 2:
            return
        for tenant in self._backlog:
            metrics = self._metrics.tenant(tenant)
            metrics.contended_time += seconds
            metrics.contended_service += 2 * self._decoding.get(tenant, 0)
        for tenant, count in prompts:
            if tenant in self._backlog:
                self._metrics.tenant(tenant).contended_service += count


def jain_index(values: list[float]) -> float:
    """1 when all are equal, 1/n when one has everything (Jain, Chiu and Hawe 1984)."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
