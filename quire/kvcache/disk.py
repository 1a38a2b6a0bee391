"""DiskTier: which prefixes lie on disk, in which slots, and which of them a prompt lacks. Plain integers, no bytes.

Full blocks are copied here soon after they were computed, beside the steps, and not only when the device evicts them:
an eviction then costs nothing, and what is here survives the process. A slot is a block of this tier. The bytes are
`segments.py`'s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quire.config.resolved import KVGroup
from quire.kvcache.hit import first_needed
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.tier import Tier


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """What a slot holds, as it is written beside it."""

    slot: int
    group: int
    name: bytes
    sequence: int
    """Counts writes: higher is younger."""
    is_retained: bool = False


@dataclass(frozen=True, slots=True)
class Lacking:
    """What the device lacks of a prompt and the disk has."""

    group: int
    position: int
    """Of the block among those of the prompt."""
    slot: int


@dataclass(slots=True)
class DiskStats:
    """Counts since the start."""

    hits: int = 0
    """Prompt tokens that were read instead of computed."""
    reads: int = 0
    """Blocks."""
    writes: int = 0
    evictions: int = 0
    """Blocks that made room for others."""
    corrupt: int = 0
    """Blocks whose bytes were not what they should be."""
    foreign: int = 0
    """Files in the folder that cannot be used."""


def _age(stored: StoredBlock) -> int:
    return stored.sequence


class DiskTier(Tier):
    """Least recently used slots are written over first."""

    def __init__(self, num_slots: int, groups: Sequence[KVGroup], block_size: int) -> None:
        super().__init__(num_slots, len(groups), on_evict=self._made_room)
        self.stats = DiskStats()
        self._block_size = block_size
        self._full = [i for i, group in enumerate(groups) if group.window is None]
        self._sliding = [(i, group.window) for i, group in enumerate(groups) if group.window is not None]

    def restore(self, found: Iterable[StoredBlock], unusable: Iterable[int] = ()) -> None:
        """Take in what an earlier process left; `unusable` slots are never handed out. Comes first, and once."""
        by_name = {(stored.group, stored.name): stored for stored in sorted(found, key=_age)}  # of two the younger
        kept = sorted(by_name.values(), key=_age)
        slots = [stored.slot for stored in kept]
        self.pool.take({*slots, *unusable})
        for stored in kept:
            self._name(stored.slot, stored.group, stored.name, is_retained=stored.is_retained)
        self.pool.release(slots)

    def has(self, entry: CachedBlock) -> bool:
        """Whether a full block is here; then it counts as just used."""
        assert entry.name is not None
        here = self.index.find(entry.group, entry.name)
        if here is not None:
            self.pool.touch(here.block)
        return here is not None

    def begin_write(self) -> int | None:
        """A slot to be written; None where all are in use."""
        return self.pool.allocate()[0] if self.pool.num_free else None

    def end_write(self, slot: int, entry: CachedBlock, *, worked: bool, is_retained: bool = False) -> None:
        """The block is in its slot, or could not be written."""
        if worked:
            assert entry.name is not None
            self.stats.writes += 1
            self._name(slot, entry.group, entry.name, is_retained=is_retained)
        self.pool.release([slot])

    def begin_read(self, lacking: Sequence[Lacking]) -> None:
        """Keep these slots until they are read."""
        self.pool.acquire_all([each.slot for each in lacking])

    def end_read(self, slot: int, *, worked: bool) -> None:
        """A slot was read, or its bytes are not what was written."""
        if worked:
            self.stats.reads += 1
        else:
            self.stats.corrupt += 1
            if self.index.get(slot) is not None:
                self.discard(slot)
        self.pool.release([slot])

    def lacking(self, names: Sequence[bytes], tiers: Sequence[Tier]) -> tuple[int, list[Lacking]]:
        """How many first blocks of a prompt are on `tiers` alone, and which others, if read, make that run longest."""
        held = [[any(tier.index.find(group, name) for tier in tiers) for name in names] for group in self._groups]
        slots = [[self._slot(group, name) for name in names] for group in self._groups]
        together = [
            [here or slot is not None for here, slot in zip(*both, strict=True)]
            for both in zip(held, slots, strict=True)
        ]
        before, after = self._run(held, len(names)), self._run(together, len(names))
        needed = [(group, 0) for group in self._full]
        needed += [(group, first_needed(after, window, self._block_size)) for group, window in self._sliding]
        lacking: list[Lacking] = []
        for group, first in needed if after > before else ():
            for position in range(first, after):
                slot = slots[group][position]
                if slot is not None and not held[group][position]:
                    lacking.append(Lacking(group, position, slot))
        return before, sorted(lacking, key=lambda each: each.position)

    @property
    def _groups(self) -> range:
        return range(len(self._full) + len(self._sliding))

    def _slot(self, group: int, name: bytes) -> int | None:
        entry = self.index.find(group, name)
        return None if entry is None else entry.block

    def _run(self, there: list[list[bool]], most: int) -> int:
        """The most first blocks of which all groups have what the token behind them looks at."""
        for group in self._full:
            most = next((place for place in range(most) if not there[group][place]), most)
        for count in range(most, 0, -1):
            firsts = ((group, first_needed(count, window, self._block_size)) for group, window in self._sliding)
            if all(all(there[group][first:count]) for group, first in firsts):
                return count
        return 0

    def _name(self, slot: int, group: int, name: bytes, *, is_retained: bool) -> None:
        # only whole blocks come back, by name: what they hold is known from the prompt that asks
        self.add(CachedBlock(slot, group, b"", name, (), 0, offered=False))
        if is_retained:
            self.pool.retain(slot)

    def _made_room(self, entry: CachedBlock) -> None:
        self.stats.evictions += 1
