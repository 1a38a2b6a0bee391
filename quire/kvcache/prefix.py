"""PrefixIndex: prefix caching: which blocks of one tier hold which tokens, so that other sequences find them.

A full block is found by its chain name. Any cached block, full or not, is also found by its parent and first
token, for reuse token by token. Knows nothing of references; its tier keeps the pool in step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

MAX_CANDIDATES = 8
"""Blocks compared token by token behind one parent and first token; older ones are no longer offered."""


class CachedBlock(msgspec.Struct, eq=False, gc=False):
    """What a block holds. There are hundreds of thousands of them, and no circles: a garbage collector that looked at
    them all, as it would when enough new ones came, would stop the engine for longer than a step.
    """

    block: int
    group: int
    parent: bytes
    name: bytes | None
    """None for a block that is not full."""
    tokens: tuple[int, ...]
    step: int
    """The step that computes it. Same-tier copies run before the model, so only earlier steps can be copied from."""
    offered: bool = True
    """Whether it may be reused token by token (not when media begin inside it)."""
    older: "CachedBlock | None" = None
    """The one offered before it behind the same parent and first token."""


@dataclass(slots=True)
class PrefixStats:
    """Counts since the start."""

    queries: int = 0
    hits: int = 0
    """Queries that found at least one token."""
    tokens_asked: int = 0
    tokens_saved: int = 0
    evictions: int = 0


class PrefixIndex:
    """Names to blocks and back, for one tier."""

    def __init__(self, num_groups: int) -> None:
        self._by_name: list[dict[bytes, CachedBlock]] = [{} for _ in range(num_groups)]
        self._by_head: dict[tuple[int, bytes, int], CachedBlock] = {}
        """By group, parent and first token: the newest, from which the others follow."""
        self._entries: dict[int, CachedBlock] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, block: int) -> CachedBlock | None:
        return self._entries.get(block)

    def find(self, group: int, name: bytes) -> CachedBlock | None:
        """The full block of this name."""
        return self._by_name[group].get(name)

    def names(self, group: int) -> Mapping[bytes, CachedBlock]:
        """All full blocks of a group by their names."""
        return self._by_name[group]

    def add(self, entry: CachedBlock) -> list[int]:
        """Offer a block; returns blocks that lost their only entry by it (older partial ones)."""
        if entry.block in self._entries:
            self.discard(entry.block)
        self._entries[entry.block] = entry
        if entry.name is not None:
            self._by_name[entry.group][entry.name] = entry
        if not entry.offered:
            return []
        head = _head_of(entry)
        entry.older = self._by_head.get(head)
        self._by_head[head] = entry
        candidates = list(_from(entry))
        if len(candidates) <= MAX_CANDIDATES:
            return []
        oldest = candidates[-1]
        candidates[-2].older = None
        oldest.offered = False
        if oldest.name is not None:
            return []
        del self._entries[oldest.block]
        return [oldest.block]

    def discard(self, block: int) -> CachedBlock:
        """The block no longer holds what it held."""
        entry = self._entries.pop(block)
        if entry.name is not None:
            del self._by_name[entry.group][entry.name]
        if entry.offered:
            self._withdraw(entry)
        return entry

    def longest(self, group: int, parent: bytes, tokens: list[int], before: int) -> tuple[CachedBlock | None, int]:
        """The block behind `parent` that shares the longest head with `tokens`, and how long that head is.

        Only blocks computed by steps earlier than `before` are considered: their content can be copied.
        """
        best, best_length = None, 0
        # newest first: of equal heads the one evicted last
        for entry in _from(self._by_head.get((group, parent, tokens[0]))):
            if entry.step >= before:
                continue
            length = common_head(entry.tokens, tokens)
            if length > best_length:
                best, best_length = entry, length
        return best, best_length

    def since(self, step: int) -> list[int]:
        """Blocks that `step` or a later one computes."""
        return [block for block, entry in self._entries.items() if entry.step >= step]

    def check(self) -> None:
        """Prove that the three maps agree."""
        named = {entry.block for names in self._by_name for entry in names.values()}
        candidates = [list(_from(newest)) for newest in self._by_head.values()]
        offered = [entry for some in candidates for entry in some]
        assert named == {block for block, entry in self._entries.items() if entry.name is not None}
        assert all(self._entries.get(entry.block) is entry and entry.offered for entry in offered)
        assert len(offered) == sum(entry.offered for entry in self._entries.values())
        assert all(0 < len(some) <= MAX_CANDIDATES for some in candidates)

    def _withdraw(self, entry: CachedBlock) -> None:
        """It is no longer offered token by token."""
        head = _head_of(entry)
        newest = self._by_head[head]
        if newest is not entry:
            newer = next(each for each in _from(newest) if each.older is entry)
            newer.older = entry.older
        elif entry.older is not None:
            self._by_head[head] = entry.older
        else:
            del self._by_head[head]
        entry.older = None


def _head_of(entry: CachedBlock) -> tuple[int, bytes, int]:
    return entry.group, entry.parent, entry.tokens[0]


def _from(newest: CachedBlock | None) -> Iterator[CachedBlock]:
    """It and those offered before it."""
    entry = newest
    while entry is not None:
        yield entry
        entry = entry.older


def common_head(left: tuple[int, ...], right: list[int]) -> int:
    """How many first elements two token lists share."""
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
