"""Routing: which engine gets a request. Knows engines only by their numbers, and their loads only from its caller."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
        adapter = request.prompt.adapter
        names = partial(chunk_names, request)
        return self.choose_by(names, replicas, loads, adapter=None if adapter is None else adapter.key)

    def choose_by(
        self,
        names_of_chunks: Callable[[], list[int]],
        replicas: Sequence[int],
        loads: Loads,
        *,
        adapter: str | None = None,
        home: tuple[int, int] | None = None,
    ) -> int:
        """One of the `replicas` for a prompt, of which only the names of its chunks are known. `home` is a replica, and
        how many tokens to count as cached there before anything is: others who choose alike have sent them there."""
        if len(replicas) == 1:
            return replicas[0]
        if self._strategy == "round-robin":
            # the next higher number, or the lowest: engines may be lost and come back between two turns
            self._last = min(replicas, key=lambda replica: (replica <= self._last, replica))
            return self._last
        load = loads.loads()
        if self._strategy == "least-loaded":
            return min(replicas, key=lambda replica: (load.get(replica, 0.0), replica))
        names = names_of_chunks()

        def cost(replica: int) -> float:
            """A cached token of the prompt saves as much as a token less of load."""
            cached = self.num_cached(replica, names)
            if home is not None and replica == home[0]:
                cached = max(cached, home[1])
            if adapter is not None and adapter in self._adapters.get(replica, ()):
                cached += ADAPTER_TOKENS
            return load.get(replica, 0.0) - cached

        chosen = min(replicas, key=lambda replica: (cost(replica), replica))
        self._remember(chosen, names)
        if adapter is not None:
            self._remember_adapter(chosen, adapter)
        return chosen

    def num_cached(self, replica: int, names: list[int]) -> int:
        """Tokens of a prompt that an engine was given before, and may still have, by the names of its chunks."""
        seen = self._seen.get(replica)
        if seen is None:
            return 0
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
