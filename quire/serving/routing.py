"""Routing: which engine gets a request. Knows engines only by their numbers, and their loads only from its caller."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

from quire.config.server import RoutingStrategy
from quire.core.request import Request

CHUNK = 64
"""Tokens that one remembered piece of a prefix stands for."""
_MOST_CHUNKS = 65_536
"""Pieces remembered for one engine: about four million tokens."""


class Loads(Protocol):
    """Whoever knows how much the engines have to do."""

    def loads(self) -> Mapping[int, float]:
        """Tokens of the requests that each engine has now, by its number."""


class Routing:
    """Remembers, by engine, the prefixes that it was given, and whose turn it is."""

    def __init__(self, strategy: RoutingStrategy = "prefix") -> None:
        self._strategy = strategy
        self._seen: dict[int, OrderedDict[int, None]] = {}
        self._last = -1

    def choose(self, request: Request, replicas: Sequence[int], loads: Loads) -> int:
        """One of the `replicas` for a request."""
        if len(replicas) == 1:
            return replicas[0]
        if self._strategy == "round-robin":
            # the next higher number, or the lowest: engines may be lost and come back between two turns
            self._last = min(replicas, key=lambda replica: (replica <= self._last, replica))
            return self._last
        load = loads.loads()
        if self._strategy == "least-loaded":
            return min(replicas, key=lambda replica: (load.get(replica, 0.0), replica))
        names = _chunk_names(request)
        # a cached token of the prompt saves as much as a token less of load
        chosen = min(replicas, key=lambda replica: (load.get(replica, 0.0) - self._cached(replica, names), replica))
        self._remember(chosen, names)
        return chosen

    def forget(self, replica: int) -> None:
        """Its cache is gone."""
        self._seen.pop(replica, None)

    def _cached(self, replica: int, names: list[int]) -> int:
        seen = self._seen.get(replica, OrderedDict())
        count = 0
        for name in names:
            if name not in seen:
                break
            count += 1
        return count * CHUNK

    def _remember(self, replica: int, names: list[int]) -> None:
        seen = self._seen.setdefault(replica, OrderedDict())
        for name in names:
            seen[name] = None
            seen.move_to_end(name)
        while len(seen) > _MOST_CHUNKS:
            seen.popitem(last=False)


def _chunk_names(request: Request) -> list[int]:
    """A name for every whole chunk of the prompt and all before it. A collision costs only time."""
    names: list[int] = []
    tokens = request.prompt.tokens
    name = hash((request.params.cache_salt, request.prompt.adapter and request.prompt.adapter.key, request.kv_variant))
    for start in range(0, len(tokens) - CHUNK + 1, CHUNK):
        name = hash((name, tokens[start : start + CHUNK]))
        names.append(name)
    return names
