"""Granting: who gets how many of a step's tokens, as a stream's next, drafts to verify or a chunk; and their blocks."""

from collections.abc import Iterable
from operator import attrgetter

from quire.config.resolved import StepLimits
from quire.core.plan import TableDelta
from quire.core.sequence import Sequence
from quire.kvcache.manager import KVManager
from quire.scheduler.draft import StepDraft

MAX_JUMP = 256
"""Output tokens that a running sequence may miss and still be served with those that miss one: a grammar has forced
them, and whoever reads the stream must not wait for other people's prompts."""
_LENGTH = attrgetter("num_computed")


class Granting:
    """Who gets how much is written into a draft; what is granted counts as computed from then on."""

    def __init__(self, limits: StepLimits, kv: KVManager) -> None:
        self._kv = kv
        self._lookahead = limits.num_lookahead_tokens
        self._longest_chunk = limits.long_prefill_token_threshold
        """0: no bound of its own."""

    def decodes(self, draft: StepDraft, running: Iterable[Sequence]) -> None:
        """The next token of every sequence that misses only one; prompts and their rests are noted for later."""
        lookahead, decodes = self._lookahead, draft.sampling
        verifying: list[Sequence] = []
        jumping: list[Sequence] = []
        for seq in running:
            known = len(seq.tokens) + seq.num_pending
            missing = known - seq.num_computed
            if missing > 1 or known == seq.num_prompt:
                has_jumped = seq.num_computed >= seq.num_prompt and missing <= MAX_JUMP
                (jumping if has_jumped else draft.unfinished).append(seq)
            elif missing == 1 and known < seq.max_total:  # else a token in flight is its last
                if seq.drafts:
                    verifying.append(seq)
                    continue
                target = known + lookahead
                if target > seq.num_slots:
                    self._grow(draft, seq, target)
                seq.grant(known)
                seq.num_pending += 1
                decodes.append(seq)
        decodes.sort(key=_LENGTH, reverse=True)  # a device begins with the first: it must not end with a long one alone
        draft.sampling_counts = [1] * len(decodes)
        draft.tokens_left -= len(decodes) + len(verifying)
        for seq in verifying:
            self._grant_drafts(draft, seq)
        for seq in jumping:
            draft.prompt_tokens_left = draft.tokens_left
            if draft.tokens_left > 0:
                self.chunk(draft, seq)
            self.promise_rest(draft, seq)

    def chunk(self, draft: StepDraft, seq: Sequence) -> None:
        """As many of a sequence's missing tokens as budget, pace and blocks allow."""
        start = seq.num_computed
        count = min(seq.num_tokens - start, draft.prompt_tokens_left)
        if start < seq.num_prompt:  # what it had answered before it lost its blocks comes in a step of its own
            count = min(count, seq.num_prompt - start)
        if self._longest_chunk:
            count = min(count, self._longest_chunk)
        if start + count + self._lookahead > seq.num_slots:
            fits = self._kv.tokens_that_fit(seq, self._kv.num_free) - self._lookahead - start
            count = min(count, fits)
            if count <= 0:
                return
            self._grow(draft, seq, start + count + self._lookahead)
        seq.grant(start + count)
        draft.tokens_left -= count
        draft.prompt_tokens_left -= count
        draft.load = draft.load.with_prompt(count, start)
        draft.computing.update(self._kv.names_between(seq, start, seq.num_computed))
        is_last = seq.num_computed == seq.num_tokens
        if is_last:
            seq.num_pending += 1
        draft.add_chunk(seq, count, samples=is_last)

    def promise_rest(self, draft: StepDraft, seq: Sequence) -> None:
        """Blocks that the rest of a begun prompt will need are not for newcomers."""
        if seq.num_computed < seq.num_tokens:
            draft.promised += self._kv.cost_of_growth(seq, seq.num_tokens + self._lookahead)

    def _grant_drafts(self, draft: StepDraft, seq: Sequence) -> None:
        """Proposed tokens are computed like known ones; `update` takes back those that are rejected."""
        proposal = seq.drafts[: max(0, min(draft.tokens_left, seq.max_total - len(seq.tokens) - 1))]
        seq.drafts = []
        target = seq.num_tokens + len(proposal)
        if target + self._lookahead > seq.num_slots:
            self._grow(draft, seq, target + self._lookahead)
        seq.grant(target)
        seq.num_pending += 1
        draft.tokens_left -= len(proposal)
        draft.sampling.append(seq)
        draft.sampling_counts.append(1 + len(proposal))
        if proposal:
            draft.drafts[seq.row] = proposal
            draft.num_drafts[seq.id] = len(proposal)

    def _grow(self, draft: StepDraft, seq: Sequence, num_tokens: int) -> None:
        start = self._kv.grow(seq, num_tokens)
        draft.table_deltas.append(TableDelta(seq.row, start, self._kv.table_from(seq, start)))
