"""Transit: blocks of the device whose bytes are just now on their way in from elsewhere, or on their way out.

They are referenced outside of every table, so nobody takes them. What comes in has no name before all of its bytes are
there; what goes out is not written meanwhile. Plain integers: who carries the bytes is not known here.
"""

from collections import Counter
from collections.abc import Sequence as Seq

from quire.config.resolved import KVGroup
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.table import BlockTable
from quire.kvcache.tier import Tier

_LONG_AGO = 0
"""The step of blocks that came from elsewhere: they are there before any step that is planned from now on."""


class Transit:
    """Of one device."""

    def __init__(self, groups: Seq[KVGroup], block_size: int, device: Tier, host: Tier) -> None:
        self._groups = groups
        self._block_size = block_size
        self._device = device
        self._host = host
        self.held: Counter[int] = Counter()
        """References by block."""

    # -- in ----------------------------------------------------------------------------------------------------

    def missing(self, table: BlockTable, tokens: list[int], count: int) -> list[CachedBlock]:
        """What neither tier has of a table's first `count` blocks, as far as a sequence behind them looks back.

        The table has names for as many; the entries have no block yet. Those of one position stand together.
        """
        size = self._block_size
        first = [
            0 if group.window is None else max(0, count * size - group.window + 1) // size for group in self._groups
        ]
        found: list[CachedBlock] = []
        for position in range(count):
            name = table.names[position]
            for group, start in enumerate(first):
                if position < start or self._has(group, name):
                    continue
                held = tuple(tokens[position * size : (position + 1) * size])
                offered = not table.extra(position, size)
                found.append(CachedBlock(-1, group, table.parent_of(position), name, held, _LONG_AGO, offered))
        return found

    def expect(self, entries: Seq[CachedBlock]) -> None:
        """Give each a block for its bytes to come to. The caller has checked that so many are free."""
        for entry, block in zip(entries, self._device.pool.allocate(len(entries)), strict=True):
            entry.block = block
            self.held[block] += 1

    def arrived(self, entry: CachedBlock) -> None:
        """All bytes of one are there: whoever looks for its name finds it, until someone needs the room."""
        self._device.add(entry)
        self.give_back([entry.block])

    def lost(self, entry: CachedBlock) -> None:
        """Its bytes will not come, and nobody writes to its block any more."""
        self.give_back([entry.block])

    # -- out ---------------------------------------------------------------------------------------------------

    def lend(self, group: int, name: bytes, settled: int) -> int | None:
        """The block of this name, which stays as it is until it is given back; None where it is not here, or where a
        step behind `settled`, the last that has surely run, computes it."""
        entry = self._device.index.find(group, name)
        if entry is None or entry.step > settled:
            return None
        self._device.pool.acquire(entry.block)
        self.held[entry.block] += 1
        return entry.block

    def give_back(self, blocks: Seq[int]) -> None:
        """Nobody reads or writes them from outside any more."""
        for block in blocks:
            self.held[block] -= 1
            if not self.held[block]:
                del self.held[block]
        self._device.pool.release(blocks)

    def _has(self, group: int, name: bytes) -> bool:
        return self._device.index.find(group, name) is not None or self._host.index.find(group, name) is not None
