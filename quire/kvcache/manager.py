"""KVManager: which blocks every sequence has, gets, shares and gives back. Plain integers, no device.

The scheduler asks what something would cost, decides, then tells the manager to do it; operations that need
blocks assume that the question was asked. Copies that follow from them are collected for the step's plan.
"""

from collections import Counter
from collections.abc import Sequence as Seq

from quire.config.resolved import KVLayout
from quire.core.plan import Move
from quire.core.sequence import Sequence
from quire.kvcache.blocks import NULL_BLOCK
from quire.kvcache.hit import Hit, PrefixFinder
from quire.kvcache.host import HostTier
from quire.kvcache.moves import StepMoves
from quire.kvcache.prefix import CachedBlock, PrefixStats
from quire.kvcache.table import BlockTable
from quire.kvcache.tier import Tier
from quire.kvcache.transit import Transit
from quire.kvcache.usage import KVUsage, measure_usage

NEVER = 1 << 62
"""A `register_at` that is never reached: the sequence does not fill the prefix cache."""


class KVManager:
    """Block tables of all sequences, over one device pool and one CPU pool."""

    def __init__(self, layout: KVLayout, enable_prefix_caching: bool = True) -> None:
        self.block_size = layout.block_size
        self.groups = layout.groups
        self.stats = PrefixStats()
        self._caching = enable_prefix_caching
        self._has_windows = any(group.window is not None for group in self.groups)
        self._tables: dict[int, BlockTable] = {}
        self._sequences: dict[int, Sequence] = {}
        self._step = 0
        self.device = Tier(layout.num_blocks, len(self.groups), self._evicted)
        self.host = HostTier(layout.num_cpu_blocks, layout.num_blocks, len(self.groups))
        self._moves = StepMoves(self.device.pool, self.host.pool)
        self._finder = PrefixFinder(self.groups, self.block_size, self.device, self.host)
        self.held_beside: Counter[int] = Counter()
        """References to device blocks that something beside the steps reads or fills, by block."""
        self._moves_evicted = True
        self.transit = Transit(self.groups, self.block_size, self.device, self.host)

    # -- the step ------------------------------------------------------------------------------------------

    def begin_step(self, step: int) -> None:
        """What follows is planned for `step`."""
        self._step = step

    def take_moves(self) -> tuple[list[Move], list[Move], list[Move]]:
        """The (swaps out, swaps in, copies) collected since the last call."""
        return self._moves.take()

    # -- questions -----------------------------------------------------------------------------------------

    @property
    def num_free(self) -> int:
        return self.device.pool.num_free

    def most_blocks(self, num_tokens: int, chunk: int) -> int:
        """The most blocks a sequence holds on its way to `num_tokens`, computed in chunks of at most `chunk`.

        One more per group for the copy that a shared block may need.
        """
        return sum(self._group_blocks(group.window, num_tokens, chunk) + 1 for group in self.groups)

    def name_blocks(self, seq: Sequence) -> BlockTable:
        """Name the full blocks of a sequence's tokens: once, when it arrives, so that no step has to."""
        request = seq.request
        # of a prompt that is read out token by token nothing may be skipped, and such texts seldom begin alike
        caches = self._caching and request.params.use_prefix_cache and not request.reads_every_token
        table = BlockTable(seq, len(self.groups), caches)
        if table.caches:
            table.name_blocks(seq.tokens, self._most_cached(seq) // self.block_size, self.block_size)
        return table

    def find(self, seq: Sequence) -> tuple[BlockTable, Hit]:
        """What the caches hold of a sequence that has no blocks."""
        table = self.name_blocks(seq)
        if not table.caches:
            return table, Hit(blocks=[[] for _ in self.groups])
        return table, self._finder.find(table, seq.tokens, self._most_cached(seq), self._step)

    def _most_cached(self, seq: Sequence) -> int:
        """Tokens that may come from the cache: the last one is always left to compute."""
        # whoever asks what the model thought of the prompt has it computed, all of it
        return 0 if seq.request.params.prompt_logprobs is not None else len(seq.tokens) - 1

    def cost_of_hit(self, hit: Hit, num_tokens: int, chunk: int) -> int:
        """Free blocks it takes to attach a hit and then to hold `num_tokens`."""
        refs = self.device.pool.refs
        found = [block for blocks in hit.blocks for block in blocks if block is not None]
        cost = len([block for block in found if block < 0 or refs[block] == 0])
        cost += sum(1 for entry in hit.extension if refs[entry.block] == 0)
        for group in self.groups:
            total = self._group_blocks(group.window, num_tokens, chunk)
            cost += max(0, min(total, -(-num_tokens // self.block_size) - hit.num_blocks))
        return cost

    def cost_of_growth(self, seq: Sequence, num_tokens: int) -> int:
        """Free blocks it takes until a sequence that has blocks can hold `num_tokens`."""
        table = self._tables[seq.id]
        new = max(0, -(-num_tokens // self.block_size) - len(table))
        return new * len(self.groups) + len(self._shared_groups(seq, table))

    def cost_of_return(self, seq: Sequence, num_tokens: int) -> int:
        """Free blocks it takes to bring a swapped sequence back and then to hold `num_tokens`."""
        table = self.host.table_of(seq)
        new = max(0, -(-num_tokens // self.block_size) - len(table))
        return len(table.held()) + new * len(self.groups)

    def tokens_that_fit(self, seq: Sequence, num_free: int) -> int:
        """How many tokens in all a sequence can hold with `num_free` more blocks."""
        table = self._tables[seq.id]
        spare = num_free - self.cost_of_growth(seq, 0)
        if spare < 0:
            return seq.num_computed
        return (len(table) + spare // len(self.groups)) * self.block_size

    def table_from(self, seq: Sequence, start: int) -> list[list[int]]:
        """A sequence's blocks by group, from logical position `start` on."""
        return [group[start:] for group in self._tables[seq.id].blocks]

    def names_between(self, seq: Sequence, start: int, end: int) -> list[bytes]:
        """Names of the blocks that are full once tokens `start` to `end` are computed, where they are known."""
        table = self._tables[seq.id]
        return table.names[start // self.block_size : end // self.block_size] if table.caches else []

    def num_blocks_of(self, seq: Sequence) -> int:
        return len(self._tables[seq.id].held())

    # -- sequences come, grow, share and go ------------------------------------------------------------------

    def attach(self, seq: Sequence, table: BlockTable, hit: Hit) -> None:
        """Give a sequence the blocks of a hit that `find` returned in this step."""
        self._tables[seq.id] = table
        self._sequences[seq.id] = seq
        device = self.device.pool
        for group, blocks in enumerate(hit.blocks):
            # hold everything that is there before anything is brought in, or the one could evict the other
            here = [block for block in blocks if block is not None and block >= 0]
            device.acquire_all(here)
            table.blocks[group] = here
            if len(here) < len(blocks):
                self.host.pool.acquire_all([~block for block in blocks if block is not None and block < 0])
                table.blocks[group] = [NULL_BLOCK if block is None else block for block in blocks]
            if table.num_retained:
                for found in here:
                    device.retain(found)
        for entry in hit.extension:
            device.acquire(entry.block)
        table.num_registered = hit.num_blocks
        for group, blocks in enumerate(hit.blocks):
            if min(table.blocks[group], default=0) < 0:
                for position, block in enumerate(blocks):
                    if block is not None and block < 0:
                        table.blocks[group][position] = self._bring_in(table, group, position, ~block, seq)
            table.trimmed[group] = next((i for i, block in enumerate(blocks) if block is not None), len(blocks))
        seq.find_cached(hit.num_tokens)
        if hit.extension:
            self._attach_extension(table, hit)
        self._count(seq, hit)
        self._refresh(seq, table)

    def trim(self, seq: Sequence) -> None:
        """Give back blocks that no token from `num_computed` on looks at; only before a step grants that sequence."""
        if not self._has_windows:
            return
        table = self._tables[seq.id]
        # drafts under verification count as computed and may be taken back: only up to the last token is it certain
        certain = min(seq.num_computed, seq.num_tokens - 1)
        for group, spec in enumerate(self.groups):
            if spec.window is None:
                continue
            blocks = table.blocks[group]
            first = min(max(0, certain - spec.window + 1) // self.block_size, len(blocks))
            gone = range(table.trimmed[group], first)
            if not gone:
                continue
            self.device.pool.release([blocks[position] for position in gone])
            for position in gone:
                blocks[position] = NULL_BLOCK
            table.trimmed[group] = first

    def grow(self, seq: Sequence, num_tokens: int) -> int:
        """Make room for `num_tokens`, writable from `num_computed` on. Returns the first logical block that changed."""
        self.trim(seq)
        table = self._tables[seq.id]
        start = len(table)
        for group in self._shared_groups(seq, table):
            start = min(start, self._unshare(seq, table, group))
        missing = -(-num_tokens // self.block_size) - len(table)
        if missing > 0:
            for blocks in table.blocks:
                blocks.extend(self.device.pool.allocate(missing))
        seq.num_slots = len(table) * self.block_size
        return start

    def register(self, seq: Sequence) -> None:
        """Offer a sequence's full blocks to the prefix cache, as far as their tokens are known."""
        table, size = self._tables[seq.id], self.block_size
        count = min(seq.num_computed, len(seq.tokens)) // size
        table.name_blocks(seq.tokens, count, size)
        for position in range(table.num_registered, count):
            self._offer(table, position, seq.tokens[position * size : (position + 1) * size], table.names[position])
        table.num_registered = max(count, table.num_registered)
        self._refresh_registration(seq, table)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a sequence share all blocks of another; whoever writes into a shared block first gets a copy."""
        full = child.num_computed // self.block_size
        child.block_names = parent.block_names[:full]
        # blocks behind the child's tokens stay the parent's alone
        table = self._tables[parent.id].share(child, -(-child.num_computed // self.block_size))
        table.num_registered = min(table.num_registered, full)
        for block in table.held():
            self.device.pool.acquire(block)
        self._tables[child.id] = table
        self._sequences[child.id] = child
        # both ask before their next write
        parent.num_slots = min(parent.num_slots, parent.num_computed)
        self._refresh_registration(child, table)
        child.num_slots = child.num_computed

    def release(self, seq: Sequence, keep: bool = True) -> None:
        """Give back a sequence's blocks; `keep` leaves what it computed in the prefix cache."""
        table = self._tables[seq.id]
        if keep and table.caches:
            self._offer_all(seq, table)
        del self._tables[seq.id], self._sequences[seq.id]
        self.device.pool.release(table.held())
        seq.lose_kv()

    def can_swap_out(self, seq: Sequence) -> bool:
        return self.host.pool.num_free >= len(self._tables[seq.id].held())

    def swap_out(self, seq: Sequence) -> None:
        """Move a sequence's blocks to the CPU tier. The caller has asked `can_swap_out`."""
        table = self._tables[seq.id]
        if table.caches:
            self.register(seq)
        self.host.store(seq, table, self._moves, self.block_size, self._step)
        del self._tables[seq.id], self._sequences[seq.id]
        self.device.pool.release(table.held())
        seq.num_slots = 0
        seq.register_at = NEVER  # until it is back

    def swap_in(self, seq: Sequence) -> None:
        """Bring a swapped sequence back; full blocks that the device still holds are shared, not copied."""
        stored = self.host.fetch(seq)
        table = stored.share(seq, len(stored))
        self._tables[seq.id] = table
        self._sequences[seq.id] = seq
        for position, blocks in enumerate(zip(*stored.blocks, strict=True)):
            for group, block in enumerate(blocks):
                if block != NULL_BLOCK:
                    table.blocks[group][position] = self._bring_in(table, group, position, block, seq)
        self._refresh(seq, table)

    def drop_swapped(self, seq: Sequence) -> None:
        """Give back a swapped sequence's CPU blocks; whole ones stay cached there."""
        self.host.drop(seq)
        seq.lose_kv()

    def forget_since(self, step: int) -> None:
        """Steps from `step` on did not run: nothing that they were to compute may be found."""
        for tier in (self.device, self.host):
            for block in tier.index.since(step):
                tier.discard(block)

    # -- blocks that are read and filled beside the steps -------------------------------------------------------

    def hold(self, blocks: Seq[int]) -> None:
        """Keep the content of blocks, full ones, while something beside the steps reads it."""
        self.device.pool.acquire_all(blocks)
        self.held_beside.update(blocks)

    def reserve(self, count: int) -> list[int]:
        """Blocks to be filled beside the steps. What is evicted for them does not go to the host: that is a step's to
        do, and they may be filled before the next one."""
        self._moves_evicted = False
        try:
            blocks = self.device.pool.allocate(count)
        finally:
            self._moves_evicted = True
        self.held_beside.update(blocks)
        return blocks

    def let_go(self, blocks: Seq[int]) -> None:
        """End of `hold` and `reserve`; tails before heads, as they should be evicted."""
        self.held_beside.subtract(blocks)
        for block in blocks:
            if not self.held_beside[block]:
                del self.held_beside[block]
        self.device.pool.release(blocks)

    def entry(self, seq: Sequence, table: BlockTable, group: int, position: int, block: int) -> CachedBlock:
        """What a reserved block is to hold that takes the place of a sequence's own at `position`; `device.add` it when
        it does."""
        start = position * self.block_size
        tokens = tuple(seq.tokens[start : start + self.block_size])
        is_offered = not table.extra(position, self.block_size)
        # step 0: it does not depend on whether a step ran
        return CachedBlock(block, group, table.parent_of(position), table.names[position], tokens, 0, is_offered)

    def forget_all(self) -> None:
        """No block holds anything any more. Nothing may be live."""
        for tier in (self.device, self.host):
            for block in tier.pool.cached_blocks():
                tier.discard(block)

    # -- statistics and proof ------------------------------------------------------------------------------

    def usage(self) -> KVUsage:
        """How full the pools are and how much of what is allocated holds no token."""
        return measure_usage(self.device.pool, self.block_size, self.sequences_and_tables())

    def sequences_and_tables(self) -> list[tuple[Sequence, BlockTable]]:
        return [(self._sequences[seq_id], table) for seq_id, table in self._tables.items()]

    @property
    def moves(self) -> StepMoves:
        return self._moves

    # -- inside --------------------------------------------------------------------------------------------

    def _group_blocks(self, window: int | None, num_tokens: int, chunk: int) -> int:
        total = -(-num_tokens // self.block_size)
        if window is None:
            return total
        # the window may begin, and the chunk end, in the middle of a block
        return min(total, -(-(window + chunk) // self.block_size) + 1)

    def _evicted(self, entry: CachedBlock) -> None:
        self.stats.evictions += 1
        if self._moves_evicted:
            self.host.keep(entry, self._moves, self._step)

    def _bring_in(self, table: BlockTable, group: int, position: int, block: int, seq: Sequence) -> int:
        """Turn a referenced CPU block into a referenced device block with the same content."""
        name = table.names[position] if position < table.num_registered else None
        here = None if name is None else self.device.index.find(group, name)
        if here is not None:
            self.device.pool.acquire(here.block)
            self.host.pool.release([block])
            return here.block
        [target] = self.device.pool.allocate()
        self._moves.swap_in(block, target)
        if name is not None and table.caches:
            start = position * self.block_size
            self._offer_block(table, group, position, target, seq.tokens[start : start + self.block_size], name)
        return target

    def _attach_extension(self, table: BlockTable, hit: Hit) -> None:
        length = hit.num_tokens - hit.num_blocks * self.block_size
        for group, entry in enumerate(hit.extension):
            # nobody else uses it and nothing in it lies behind the hit: go on writing in place
            if entry.name is None and len(entry.tokens) == length and self.device.pool.refs[entry.block] == 1:
                table.blocks[group].append(entry.block)
                continue
            [target] = self.device.pool.allocate()
            self._moves.copy(entry.block, target)
            table.blocks[group].append(target)

    def _count(self, seq: Sequence, hit: Hit) -> None:
        # a sequence that comes back asks for what it had: that is no news about the cache
        if not self._tables[seq.id].caches or seq.num_preemptions:
            return
        self.stats.queries += 1
        self.stats.hits += hit.num_tokens > 0
        self.stats.tokens_asked += len(seq.tokens)
        self.stats.tokens_saved += hit.num_tokens

    def _refresh(self, seq: Sequence, table: BlockTable) -> None:
        seq.num_slots = len(table) * self.block_size
        self._refresh_registration(seq, table)

    def _refresh_registration(self, seq: Sequence, table: BlockTable) -> None:
        seq.register_at = (table.num_registered + 1) * self.block_size if table.caches else NEVER

    def _shared_groups(self, seq: Sequence, table: BlockTable) -> list[int]:
        """Groups in which the block that takes the next token belongs to others too."""
        position = seq.num_computed // self.block_size
        if position >= len(table) or seq.num_slots > seq.num_computed:
            return []
        refs, copied = self.device.pool.refs, self._moves.held_device
        shared = [blocks[position] for blocks in table.blocks]
        return [group for group, block in enumerate(shared) if refs[block] - copied[block] > 1]

    def _unshare(self, seq: Sequence, table: BlockTable, group: int) -> int:
        position = seq.num_computed // self.block_size
        shared = table.blocks[group][position]
        [own] = self.device.pool.allocate()
        table.blocks[group][position] = own
        if seq.num_computed % self.block_size:
            self._moves.copy(shared, own)
        else:
            self.device.pool.release([shared])
        return position

    def _offer_all(self, seq: Sequence, table: BlockTable) -> None:
        """Name the full blocks and the begun one of a sequence that gives up its blocks."""
        self.register(seq)
        position = table.num_registered
        known = min(seq.num_computed, len(seq.tokens))
        rest = seq.tokens[position * self.block_size : known]
        if rest and position < len(table) and not table.extra(position, self.block_size):
            self._offer(table, position, rest, None)

    def _offer(self, table: BlockTable, position: int, tokens: list[int], name: bytes | None) -> None:
        for group, blocks in enumerate(table.blocks):
            if blocks[position] != NULL_BLOCK:
                self._offer_block(table, group, position, blocks[position], tokens, name)

    def _is_news(self, block: int, length: int) -> bool:
        """Whether a begun block may be offered: nobody else writes it, and nothing longer is known of it."""
        known = self.device.index.get(block)
        return self.device.pool.refs[block] == 1 and (
            known is None or (known.name is None and len(known.tokens) < length)
        )

    def _offer_block(
        self, table: BlockTable, group: int, position: int, block: int, tokens: list[int], name: bytes | None
    ) -> None:
        if name is None and not self._is_news(block, len(tokens)):
            return
        offered = not table.extra(position, self.block_size)
        entry = CachedBlock(block, group, table.parent_of(position), name, tuple(tokens), self._step, offered)
        self.device.add(entry)
        if (position + 1) * self.block_size <= table.num_retained:
            self.device.pool.retain(block)
