"""Router: which replica of a simulated cluster gets a request, by the routing of a real server.

It knows what a front end knows: arrivals, not what engines do. So its picture of a replica is a queue that drains at a
constant rate, and a replica is as loaded as what is left in that queue.
"""

from quire.config.server import RoutingStrategy
from quire.serving.routing import Routing
from quire.simulation.workload import RequestMaker, SimulatedRequest

FIRST_GUESS = 256.0
"""Output tokens expected of a request before any has been seen."""
MEMORY = 0.999
"""Weight of the past in the mean length of answers, a request."""


class Router:
    """Assigns requests in the order of their arrival."""

    def __init__(self, strategy: RoutingStrategy, num_replicas: int, tokens_per_second: float) -> None:
        self._routing = Routing(strategy)
        self._replicas = range(num_replicas)
        self._maker = RequestMaker()
        self._rate = tokens_per_second
        self._expected = FIRST_GUESS
        self._now = 0.0
        self._empty_at = [0.0] * num_replicas

    def assign(self, request: SimulatedRequest) -> int:
        """The replica for the next request."""
        self._now = request.arrival
        replica = self._routing.choose(self._maker.make(request), self._replicas, self)
        work = (request.input_tokens + self._expected * request.n) / self._rate
        self._empty_at[replica] = max(self._empty_at[replica], self._now) + work
        # a front end sees how long answers are as they pass through
        self._expected = MEMORY * self._expected + (1 - MEMORY) * request.output_tokens
        return replica

    def loads(self) -> dict[int, float]:
        """Tokens that each replica has still to do."""
        return {replica: max(0.0, empty_at - self._now) * self._rate for replica, empty_at in enumerate(self._empty_at)}
