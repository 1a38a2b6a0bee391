"""Routing: which engine gets a request. Knows engines only by their numbers, and their loads only from its caller."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

from quire.config.server import RoutingStrategy
from quire.core.request import Request

CHUNK = 64
"""Tokens that one remembered piece of a prefix stands for."""
ADAPTER_TOKENS = 2048
"""What having a request's LoRA adapter is worth, in tokens of load: about what reading one from disk takes."""
_MOST_ADAPTERS = 256
"""Remembered for one engine; it may have let go of some."""
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
        self._adapters: dict[int, OrderedDict[str, None]] = {}
        """By engine: the adapters it was given, the last used last."""
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
        names, adapter = chunk_names(request), request.prompt.adapter

        def cost(replica: int) -> float:
            """A cached token of the prompt saves as much as a token less of load."""
            has_adapter = adapter is not None and adapter.key in self._adapters.get(replica, ())
            return load.get(replica, 0.0) - self.num_cached(replica, names) - (ADAPTER_TOKENS if has_adapter else 0)

        chosen = min(replicas, key=lambda replica: (cost(replica), replica))
        self._remember(chosen, names)
        if adapter is not None:
            self._remember_adapter(chosen, adapter.key)
        return chosen

    def num_cached(self, replica: int, names: list[int]) -> int:
        """Tokens of a prompt that an engine was given before, and may still have, by the names of its chunks."""
        seen = self._seen.get(replica, OrderedDict())
        count = 0
        for name in names:
            if name not in seen:
                break
            count += 1
        return count * CHUNK

    def forget(self, replica: int) -> None:
        """Its cache is gone."""
        self._seen.pop(replica, None)
        self._adapters.pop(replica, None)

    def _remember_adapter(self, replica: int, key: str) -> None:
        seen = self._adapters.setdefault(replica, OrderedDict())
        seen[key] = None
        seen.move_to_end(key)
        while len(seen) > _MOST_ADAPTERS:
            seen.popitem(last=False)

    def _remember(self, replica: int, names: list[int]) -> None:
        seen = self._seen.setdefault(replica, OrderedDict())
        for name in names:
            seen[name] = None
            seen.move_to_end(name)
        while len(seen) > _MOST_CHUNKS:
            seen.popitem(last=False)


def chunk_names(request: Request) -> list[int]:
    """A name for every whole chunk of the prompt and all before it. A collision costs only time."""
    names: list[int] = []
    tokens = request.prompt.tokens
    name = hash((request.params.cache_salt, request.prompt.adapter and request.prompt.adapter.key, request.kv_variant))
    for start in range(0, len(tokens) - CHUNK + 1, CHUNK):
        name = hash((name, tokens[start : start + CHUNK]))
        names.append(name)
    return names
