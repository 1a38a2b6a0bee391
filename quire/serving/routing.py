"""Routing: which engine gets a request: the one that has most of its prefix cached, unless it has too much to do."""

from collections import Counter, OrderedDict

from quire.core.request import Request
from quire.serving.journal import Journal

CHUNK = 64
"""Tokens that one remembered piece of a prefix stands for."""
_MOST_CHUNKS = 65_536
"""Pieces remembered for one engine: about four million tokens."""


class Routing:
    """Remembers, by engine, the prefixes that it was given."""

    def __init__(self) -> None:
        self._seen: dict[int, OrderedDict[int, None]] = {}

    def choose(self, request: Request, replicas: list[int], journal: Journal) -> int:
        """The engine for a request; what it was given is remembered."""
        if len(replicas) == 1:
            return replicas[0]
        names = _chunk_names(request)
        load = _load(journal)
        # work it would bring, less what is cached there; prompt tokens count like those that others still wait for
        chosen = min(replicas, key=lambda replica: (load[replica] - self._cached(replica, names), replica))
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


def _load(journal: Journal) -> Counter[int]:
    """Tokens that each engine has been given and not answered yet."""
    load: Counter[int] = Counter()
    for entry in journal.entries():
        load[entry.replica] += len(entry.request.prompt.tokens) + entry.num_emitted
    return load


def _chunk_names(request: Request) -> list[int]:
    """A name for every whole chunk of the prompt, in which all before it counts. A collision costs only time."""
    names: list[int] = []
    tokens = request.prompt.tokens
    name = hash((request.params.cache_salt, request.prompt.adapter, request.kv_variant))
    for start in range(0, len(tokens) - CHUNK + 1, CHUNK):
        name = hash((name, tokens[start : start + CHUNK]))
        names.append(name)
    return names
