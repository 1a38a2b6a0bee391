"""Granting: who gets how many of a step's tokens, and their blocks: decodes, drafts to verify, chunked prefill."""

from collections.abc import Iterable
from operator import attrgetter

from quire.config.resolved import StepLimits
from quire.core.plan import TableDelta
from quire.core.sequence import Sequence
from quire.kvcache.manager import KVManager
from quire.scheduler.step_builder import StepBuilder

MAX_JUMP = 256
"""Output tokens that a running sequence may miss and still be served with those that miss one: a grammar has forced
them, and whoever reads the stream must not wait for other people's prompts."""
_LENGTH = attrgetter("num_computed")


class Granting:
    """Who gets how much is written into a StepBuilder; what is granted counts as computed from then on."""

    def __init__(self, limits: StepLimits, kv: KVManager) -> None:
        self._kv = kv
        self._lookahead = limits.num_lookahead_tokens
        self._most_drafts = limits.num_drafts
        self._longest_chunk = limits.long_prefill_token_threshold
        """0: no bound of its own."""
        self._whole_prompts = limits.whole_prompts
        self._most_encoded = limits.max_encoder_tokens
        self._whole_images = limits.whole_images

    def decodes(self, builder: StepBuilder, running: Iterable[Sequence]) -> None:
        """The next token of every sequence that misses only one; prompts and their rests are noted for later."""
        lookahead, decodes = self._lookahead, builder.sampling
        jumping: list[Sequence] = []
        for seq in running:
            known = len(seq.tokens) + seq.num_pending
            missing = known - seq.num_computed
            if missing > 1 or (missing and known == seq.num_prompt):
                has_jumped = seq.num_computed >= seq.num_prompt and missing <= MAX_JUMP
                (jumping if has_jumped else builder.unfinished).append(seq)
            elif missing == 1 and known - seq.num_unverified < seq.max_total:  # else a token in flight is its last
                target = (known if known < seq.max_total else seq.max_total) + lookahead
                if target > seq.num_slots:
                    self._grow(builder, seq, target)
                seq.grant(known)
                seq.num_pending += 1
                decodes.append(seq)
        decodes.sort(key=_LENGTH, reverse=True)  # a device begins with the first: it must not end with a long one alone
        builder.sampling_counts = [1] * len(decodes)
        builder.tokens_left -= len(decodes)
        if builder.most_drafts:
            self._grant_drafts(builder)
        for seq in jumping:
            builder.prompt_tokens_left = builder.tokens_left
            if builder.tokens_left > 0:
                self.chunk(builder, seq)
            self.promise_rest(builder, seq)

    def chunk(self, builder: StepBuilder, seq: Sequence) -> None:
        """As many of a sequence's missing tokens as budget, pace and blocks allow."""
        start = seq.num_computed
        is_readout = seq.request.pooling is not None
        count = self._size_of_chunk(builder, seq)
        if count <= 0:
            return
        if start + count + self._lookahead > seq.num_slots:
            self._grow(builder, seq, start + count + self._lookahead)
        seq.grant(start + count)
        builder.tokens_left -= count
        builder.prompt_tokens_left -= count
        if is_readout:
            builder.readout_tokens_left -= count
        builder.load = builder.load.with_prompt(count, start)
        builder.computing.update(dict.fromkeys(self._kv.names_between(seq, start, seq.num_computed), seq))
        is_last = seq.num_computed == seq.num_tokens
        samples = is_last and not is_readout
        if samples:
            seq.num_pending += 1
            seq.num_proposed = self._most_drafts
        builder.add_chunk(seq, count, samples=samples)

    def _size_of_chunk(self, builder: StepBuilder, seq: Sequence) -> int:
        """Tokens; nothing to grant where it is not above 0."""
        start = seq.num_computed
        count = seq.num_tokens - start
        if not self._whole_prompts:
            count = min(count, builder.tokens_left_for(seq))
        if start < seq.num_prompt:  # what it had answered before it lost its blocks comes in a step of its own
            count = min(count, seq.num_prompt - start)
        if self._longest_chunk:
            count = min(count, self._longest_chunk)
        if start + count + self._lookahead > seq.num_slots and count > 0:
            fits = self._kv.tokens_that_fit(seq, self._kv.num_free) - self._lookahead - start
            count = min(count, fits)
        if seq.request.media and count > 0:
            count = self._before_a_cut(seq, start, count)
            count = self._within_encoder(builder, seq, range(start, start + count))
        return count

    def _before_a_cut(self, seq: Sequence, start: int, count: int) -> int:
        """Where images are not cut, how many of a chunk's tokens come before the one that it would cut."""
        if self._whole_images:
            for item in seq.request.media:
                if item.position < start + count < item.end:
                    return item.position - start
        return count

    def _within_encoder(self, builder: StepBuilder, seq: Sequence, chunk: range) -> int:
        """How many of a chunk's tokens come before the first image that the step's encoder has no room for.

        A chunk that begins inside an image has that from the step before. One image is always encoded.
        """
        for item in seq.request.media:
            if item.position in chunk:
                total = builder.num_encoded + item.num_tokens
                if builder.num_encoded and total > self._most_encoded:
                    return item.position - chunk.start
                builder.num_encoded = total
        return len(chunk)

    def promise_rest(self, builder: StepBuilder, seq: Sequence) -> None:
        """Blocks that the rest of a begun prompt will need are not for newcomers."""
        if seq.num_computed < seq.num_tokens:
            builder.promised += self._kv.cost_of_growth(seq, seq.num_tokens + self._lookahead)

    def _grant_drafts(self, builder: StepBuilder) -> None:
        """Behind the last token of every decode, what the device proposes is computed like known tokens; `update` takes
        back what is wrong."""
        decodes = builder.sampling
        most = min(builder.most_drafts, builder.tokens_left // max(1, len(decodes)))
        granted = [min(most, seq.num_proposed) for seq in decodes]
        total = sum(granted)
        if not total:
            return
        for seq, count in zip(decodes, granted, strict=True):
            seq.grant_drafts(count)
            seq.num_proposed = self._most_drafts  # until someone says how many there are
        builder.num_drafts = granted
        builder.sampling_counts = [1 + count for count in granted]
        builder.tokens_left -= total

    def _grow(self, builder: StepBuilder, seq: Sequence, num_tokens: int) -> None:
        start = self._kv.grow(seq, num_tokens)
        builder.table_deltas.append(TableDelta(seq.row, start, self._kv.table_from(seq, start)))
