"""How full the device's pool is, and how much allocated room holds no token."""

from collections.abc import Iterable
from dataclasses import dataclass

from quire.core.sequence import Sequence
from quire.kvcache.blocks import NULL_BLOCK, BlockPool
from quire.kvcache.table import BlockTable


@dataclass(frozen=True, slots=True)
class KVUsage:
    """A snapshot in blocks and slots (one token's place in one group)."""

    used_blocks: int
    shared_blocks: int
    """Used blocks with more than one reference."""
    allocated_slots: int
    """Slots of used blocks that belong to sequences."""
    wasted_slots: int
    """Allocated slots that hold no token."""
    unshared_blocks: int
    """Blocks the same sequences would use without sharing."""

    @property
    def waste(self) -> float:
        """(allocated − used) over allocated."""
        return self.wasted_slots / self.allocated_slots if self.allocated_slots else 0.0


def measure_usage(device: BlockPool, block_size: int, sequences: Iterable[tuple[Sequence, BlockTable]]) -> KVUsage:
    """Count over all tables. A block shared by several sequences counts once, by its fullest view."""
    filled: dict[int, int] = {}
    references = 0
    for seq, table in sequences:
        computed = seq.num_computed
        for blocks in table.blocks:
            for position, block in enumerate(blocks):
                if block == NULL_BLOCK:
                    continue
                references += 1
                tokens = min(block_size, max(0, computed - position * block_size))
                if filled.get(block, -1) < tokens:
                    filled[block] = tokens
    allocated = len(filled) * block_size
    return KVUsage(
        used_blocks=device.num_used,
        shared_blocks=sum(1 for block in filled if device.refs[block] > 1),
        allocated_slots=allocated,
        wasted_slots=allocated - sum(filled.values()),
        unshared_blocks=references,
    )
