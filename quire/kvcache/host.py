"""HostTier: CPU blocks for swapped sequences and for prefixes that were evicted from the device.

Both live in one pool of the same type as the device's. A swapped sequence holds references; an evicted prefix
is only cached and makes room when a sequence needs it.
"""

from quire.core.sequence import Sequence
from quire.kvcache.blocks import NULL_BLOCK
from quire.kvcache.moves import StepMoves
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.table import BlockTable
from quire.kvcache.tier import Tier

MOST_KEPT_A_STEP = 16
"""Evicted blocks that one step copies here. Steady decoding evicts fewer; a large prompt may evict hundreds, and
copying all of them would take longer than computing it."""
LEAST_SHARE_FOR_PREFIXES = 16
"""Evicted prefixes are kept where there is at least one block here for so many on the device. In a smaller pool they
would be overwritten moments later, and every step would pay for the copies."""


class HostTier(Tier):
    """Stores what leaves the device and brings it back."""

    def __init__(self, num_blocks: int, num_device_blocks: int, num_groups: int) -> None:
        super().__init__(num_blocks, num_groups, on_evict=self._made_room)
        self.num_evicted = 0
        """Prefixes that made room, in blocks."""
        self._keeps_prefixes = num_blocks * LEAST_SHARE_FOR_PREFIXES >= num_device_blocks
        self._swapped: dict[int, tuple[BlockTable, int]] = {}
        """By sequence id: its table of CPU blocks, and the step that moved it here."""

    def keep(self, entry: CachedBlock, moves: StepMoves, step: int) -> None:
        """Take in a full block that the device evicts, when there is room and time and it is not here already."""
        if not self._keeps_prefixes or entry.name is None or self.pool.num_free == 0:
            return
        here = self.index.find(entry.group, entry.name)
        if here is not None:
            self.pool.touch(here.block)
            return
        if moves.num_out >= MOST_KEPT_A_STEP:
            return
        [block] = self.pool.allocate()
        moves.swap_out(entry.block, block)
        self._name(block, entry.group, entry.parent, entry.name, entry.tokens, step)
        self.pool.release([block])

    def store(self, seq: Sequence, table: BlockTable, moves: StepMoves, block_size: int, step: int) -> None:
        """Move a sequence here; the caller releases its device blocks. Blocks that are here by name are shared."""
        stored = table.share(seq, len(table))
        for group, blocks in enumerate(table.blocks):
            for position, block in enumerate(blocks):
                if block == NULL_BLOCK:
                    continue
                name = table.names[position] if position < table.num_registered else None
                here = None if name is None else self.index.find(group, name)
                if here is not None:
                    self.pool.acquire(here.block)
                    stored.blocks[group][position] = here.block
                    continue
                [target] = self.pool.allocate()
                moves.swap_out(block, target)
                stored.blocks[group][position] = target
                if name is not None:
                    start = position * block_size
                    tokens = tuple(seq.tokens[start : start + block_size])
                    self._name(target, group, table.parent_of(position), name, tokens, step)
        self._swapped[seq.id] = (stored, step)

    def table_of(self, seq: Sequence) -> BlockTable:
        return self._swapped[seq.id][0]

    def fetch(self, seq: Sequence) -> BlockTable:
        """Give up a swapped sequence's table; its references go to the caller."""
        return self._swapped.pop(seq.id)[0]

    def drop(self, seq: Sequence) -> None:
        """Free a swapped sequence."""
        self.pool.release(self.fetch(seq).held())

    def stored_since(self, step: int) -> set[int]:
        """Ids of sequences that `step` or a later one moved here."""
        return {seq_id for seq_id, (_, moved) in self._swapped.items() if moved >= step}

    def swapped_tables(self) -> list[BlockTable]:
        return [table for table, _ in self._swapped.values()]

    def _made_room(self, entry: CachedBlock) -> None:
        self.num_evicted += 1

    def _name(self, block: int, group: int, parent: bytes, name: bytes, tokens: tuple[int, ...], step: int) -> None:
        # only whole blocks come back from here, so they are not offered token by token
        self.add(CachedBlock(block, group, parent, name, tokens, step, offered=False))
