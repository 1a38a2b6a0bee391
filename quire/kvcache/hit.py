"""Finding the longest cached prefix of a sequence, over both tiers and all KV groups.

Pure queries: nothing is referenced or moved until the manager attaches the hit.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from quire.config.resolved import KVGroup
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.table import BlockTable
from quire.kvcache.tier import Tier

_RUN = 64
"""Blocks that are looked up together."""


@dataclass(slots=True)
class Hit:
    """What a sequence does not have to compute."""

    num_tokens: int = 0
    num_blocks: int = 0
    """Whole blocks among them."""
    blocks: list[list[int | None]] = field(default_factory=list)
    """By group and logical position: a block of the device, or ~block for one on the host; None where the group's
    window no longer reaches. Plain integers: a long prompt has thousands, and a step may look at many prompts."""
    extension: list[CachedBlock] = field(default_factory=list)
    """By group: the block whose first tokens continue the hit inside the next block; empty when none does."""


def first_needed(num_blocks: int, window: int, block_size: int) -> int:
    """The first block that the token behind `num_blocks` blocks still looks at."""
    return max(0, num_blocks * block_size - window + 1) // block_size


class PrefixFinder:
    """Walks the chain of names through the tiers."""

    def __init__(self, groups: Seq[KVGroup], block_size: int, device: Tier, host: Tier) -> None:
        self._block_size = block_size
        self._device = device
        self._host = host
        self._full = [i for i, group in enumerate(groups) if group.window is None]
        self._sliding = [(i, group.window) for i, group in enumerate(groups) if group.window is not None]
        self._num_groups = len(groups)

    def find(self, table: BlockTable, tokens: list[int], limit: int, step: int) -> Hit:
        """The longest hit of at most `limit` tokens, for a table whose names reach that far."""
        candidates = limit // self._block_size
        found: list[list[int | None]] = [[] for _ in range(self._num_groups)]
        for group in self._full:
            found[group] = self._walk(group, table.names[:candidates])
            candidates = len(found[group])
        for group, _ in self._sliding:
            found[group] = [self._lookup(group, name) for name in table.names[:candidates]]
        num_blocks = self._longest_for_windows(found, candidates)
        hit = Hit(num_blocks * self._block_size, num_blocks)
        hit.blocks = [found[group][:num_blocks] for group in range(self._num_groups)]
        for group, window in self._sliding:
            first = first_needed(num_blocks, window, self._block_size)
            hit.blocks[group][:first] = [None] * first
        self._extend(hit, table, tokens, limit, step)
        return hit

    def _lookup(self, group: int, name: bytes) -> int | None:
        found = self._walk(group, [name])
        return found[0] if found else None

    def _walk(self, group: int, names: list[bytes]) -> list[int | None]:
        """The blocks of these names, up to the first that is on neither tier."""
        on_device, on_host = self._device.index.names(group), self._host.index.names(group)
        found: list[int | None] = []
        # runs that are all on the device, as most are, without a turn of a loop for each block
        for start in range(0, len(names), _RUN):
            entries = [*map(on_device.get, names[start : start + _RUN])]
            if None in entries:
                break
            found += [entry.block for entry in entries]  # type: ignore[union-attr]
        for name in names[len(found) :]:
            entry = on_device.get(name)
            if entry is not None:
                found.append(entry.block)
                continue
            entry = on_host.get(name)
            if entry is None:
                break
            found.append(~entry.block)
        return found

    def _longest_for_windows(self, found: list[list[int | None]], candidates: int) -> int:
        """The most blocks for which every sliding group still has all that its window reaches."""
        for num_blocks in range(candidates, 0, -1):
            if all(
                None not in found[group][first_needed(num_blocks, window, self._block_size) : num_blocks]
                for group, window in self._sliding
            ):
                return num_blocks
        return 0

    def _extend(self, hit: Hit, table: BlockTable, tokens: list[int], limit: int, step: int) -> None:
        """Continue the hit inside the next block, as far as all groups can."""
        position = hit.num_blocks
        rest = tokens[hit.num_tokens : min(limit, hit.num_tokens + self._block_size)]
        if not rest or table.extra(position, self._block_size):
            return
        extension: list[CachedBlock] = []
        length = len(rest)
        for group in range(self._num_groups):
            entry, common = self._device.index.longest(group, table.parent_of(position), rest, step)
            if entry is None:
                return
            extension.append(entry)
            length = min(length, common)
        hit.extension = extension
        hit.num_tokens += length
