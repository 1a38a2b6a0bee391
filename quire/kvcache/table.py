"""BlockTable: where the tokens of one sequence live, and the names of its full blocks."""

from quire.core.sequence import Sequence
from quire.kvcache.blocks import NULL_BLOCK
from quire.kvcache.chain import TOKEN_BYTES, chain_name, chain_root, media_in_block, token_bytes


def _adapter_key(seq: Sequence) -> str | None:
    adapter = seq.request.prompt.adapter
    return None if adapter is None else adapter.key


class BlockTable:
    """Physical blocks by KV group and logical position, equally many in every group."""

    __slots__ = ("_media", "blocks", "caches", "names", "num_registered", "num_retained", "root", "trimmed")

    def __init__(self, seq: Sequence, num_groups: int, caches: bool) -> None:
        self.blocks: list[list[int]] = [[] for _ in range(num_groups)]
        self.trimmed = [0] * num_groups
        """Logical blocks at the start of each group that fell out of its window; they are null."""
        self.caches = caches
        """Whether this sequence reads and fills the prefix cache."""
        self.root = chain_root(_adapter_key(seq), seq.request.params.cache_salt, seq.kv_variant)
        self.names = seq.block_names
        """Chain names of full blocks, as far as they were needed; the sequence's own list."""
        self.num_registered = 0
        """Full blocks that were offered to the prefix cache."""
        self.num_retained = seq.num_prompt if seq.request.params.retain_prefix else 0
        """First tokens whose blocks are to outlive others in the prefix cache."""
        self._media = seq.request.prompt.media

    def __len__(self) -> int:
        return len(self.blocks[0])

    def parent_of(self, position: int) -> bytes:
        """The chain name behind which the logical block at `position` stands."""
        return self.names[position - 1] if position else self.root

    def name_blocks(self, tokens: list[int], count: int, block_size: int) -> None:
        """Make sure the first `count` full blocks have names."""
        names, first = self.names, len(self.names)
        if count <= first:
            return
        data, width = token_bytes(tokens[first * block_size : count * block_size]), block_size * TOKEN_BYTES
        name = self.parent_of(first)
        for position in range(first, count):
            start = (position - first) * width
            name = chain_name(name, data[start : start + width], self.extra(position, block_size))
            names.append(name)

    def extra(self, position: int, block_size: int) -> bytes:
        """Extra keys of one logical block: the media that begin in it."""
        if not self._media:
            return b""
        return media_in_block(self._media, position * block_size, (position + 1) * block_size)

    def held(self) -> list[int]:
        """Every physical block it references, tails before heads: the order in which they should be evicted."""
        held: list[int] = []
        for position in range(len(self) - 1, -1, -1):
            held.extend(group[position] for group in self.blocks if group[position] != NULL_BLOCK)
        return held

    def share(self, seq: Sequence, length: int) -> "BlockTable":
        """A table for `seq` that lists the same first `length` blocks; the caller counts the references."""
        twin = BlockTable(seq, len(self.blocks), self.caches)
        twin.blocks = [group[:length] for group in self.blocks]
        twin.trimmed = [min(trimmed, length) for trimmed in self.trimmed]
        twin.num_registered = min(self.num_registered, length)
        return twin
