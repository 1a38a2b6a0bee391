"""Router: which replica of a cluster gets a request. Knows what a front end knows: arrivals, not what engines do.

Its picture of a replica is a queue that drains at a constant rate, so a replica is as loaded as the time at which
that queue would be empty.
"""

from collections.abc import Callable
from heapq import heapify, heapreplace

from quire.simulation.limits import RouterName
from quire.simulation.workload import SimulatedRequest

FIRST_GUESS = 256.0
"""Output tokens expected of a request before any has been seen."""
MEMORY = 0.999
"""Weight of the past in the mean length of answers, a request."""
TOLERANCE = 2.0
"""Seconds that the replica with the right prefix may be behind the least loaded one."""


class Router:
    """Assigns requests in the order of their arrival."""

    def __init__(self, name: RouterName, num_replicas: int, tokens_per_second: float) -> None:
        choices: dict[RouterName, Callable[[SimulatedRequest], int]] = {
            "round-robin": self._in_turn,
            "least-tokens": self._least_loaded,
            "prefix": self._same_prefix,
        }
        self._choose = choices[name]
        self._rate = tokens_per_second
        self._next = 0
        self._expected = FIRST_GUESS
        self._empty_at = [0.0] * num_replicas
        self._heap = [(0.0, replica) for replica in range(num_replicas)]
        """Least loaded first. Entries may be out of date, and are put right when they surface."""
        heapify(self._heap)

    def assign(self, request: SimulatedRequest) -> int:
        """The replica for the next request."""
        replica = self._choose(request)
        work = (request.input_tokens + self._expected * request.n) / self._rate
        self._empty_at[replica] = max(self._empty_at[replica], request.arrival) + work
        # a front end sees how long answers are as they pass through
        self._expected = MEMORY * self._expected + (1 - MEMORY) * request.output_tokens
        return replica

    def _in_turn(self, request: SimulatedRequest) -> int:
        replica = self._next
        self._next = (replica + 1) % len(self._empty_at)
        return replica

    def _least_loaded(self, request: SimulatedRequest) -> int:
        heap, empty_at = self._heap, self._empty_at
        while heap[0][0] != empty_at[heap[0][1]]:
            replica = heap[0][1]
            heapreplace(heap, (empty_at[replica], replica))
        return heap[0][1]

    def _same_prefix(self, request: SimulatedRequest) -> int:
        """The replica that requests with this first piece go to, unless it is far behind."""
        least = self._least_loaded(request)
        if not request.hash_ids:
            return least
        replica = (request.hash_ids[0] * 0x9E3779B1 >> 7) % len(self._empty_at)
        busy_until = max(self._empty_at[least], request.arrival)
        return replica if self._empty_at[replica] <= busy_until + TOLERANCE else least
