"""Scheduler: continuous batching: each step, who computes how many tokens, who comes in and who makes way.

Knows no torch and no clock.

There are no phases: a sequence has tokens and has computed some of them, and a step grants more. A prompt, the
rest of a chunked prompt, a decode, drafts to verify and a preempted sequence that starts over differ only in
how many tokens are missing.

Steps are asynchronous: `schedule` may be called again before the last result is read. It then counts on the
tokens those steps will sample (placeholders); `update` fills them in.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq

from quire.config.resolved import PreemptionCosts, PreemptionMode, StepLimits
from quire.core.draft_counts import DraftCounts
from quire.core.kv_variant import LONG_VARIANT
from quire.core.plan import Admission, StepPlan
from quire.core.request import Request
from quire.core.result import StepResult
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.kvcache.hit import Hit
from quire.kvcache.manager import KVManager
from quire.kvcache.table import BlockTable
from quire.scheduler.adapter_room import AdapterRoom
from quire.scheduler.arrival import longest_total
from quire.scheduler.deadlines import Deadlines
from quire.scheduler.draft_length import DraftLength
from quire.scheduler.granting import Granting
from quire.scheduler.intake import StepUpdate, take_in
from quire.scheduler.leader import Leader
from quire.scheduler.pacing import Pacer
from quire.scheduler.policies.base import Policy
from quire.scheduler.readout_pace import ReadoutPace
from quire.scheduler.roster import Roster, RosterStats
from quire.scheduler.step_builder import Flight, StepBuilder
from quire.scheduler.turns import Turns

SEARCHES = 16
"""Tokens of waiting prompts that a step may look for in the prefix cache, for each that it may compute: a queue of long
prompts must not hold up a step."""
MAX_DISPLACED = 8
"""Running sequences that make way for better ranked ones in one step: a burst must not stall everyone."""
HEADROOM = 100
"""One block in this many stays free at admission, so that running sequences can grow for a while."""
HOLDS_KV = frozenset({Status.PAUSED, Status.SWAPPED})
"""Queued states in which a sequence starts from blocks of its own, not from the prefix cache."""


class Scheduler:
    """The heart of an engine: requests in, plans out, results in, finished sequences out."""

    def __init__(
        self,
        limits: StepLimits,
        kv: KVManager,
        policy: Policy,
        preemption: PreemptionMode = "auto",
        costs: PreemptionCosts | None = None,
        pacer: Pacer | None = None,
        queue_timeout: float | None = None,
        draft_length: DraftLength | None = None,
        adapters: AdapterRoom | None = None,
        numbers: Iterator[int] | None = None,
    ) -> None:
        """`numbers` are those of its sequences, where another scheduler numbers its own by them too."""
        self.limits = limits
        self.adapters = adapters
        """Which LoRA adapters are on the device; None: there are none."""
        self.kv = kv
        self.token_budget = limits.max_num_batched_tokens
        """Tokens the next steps may have: fewer than the limit while the device is short of memory."""
        self.num_deferred = 0
        """Admissions put off by a step because another sequence was just computing the same prefix."""
        costs = costs or PreemptionCosts(seconds_per_token=1.0, seconds_per_block=1.0)
        self._roster = Roster(limits.max_num_seqs, kv, policy, preemption, costs, numbers)
        self._granting = Granting(limits, kv)
        self._turns = Turns(limits.num_stages) if limits.num_stages > 1 else None
        self._queue = policy
        self._pacer = pacer
        self._readout_pace = ReadoutPace(limits.max_num_batched_tokens)
        self._deadlines = Deadlines(queue_timeout)
        self._lookahead = limits.num_lookahead_tokens
        self._draft_length = draft_length
        self.drafts_are_off = False
        """Whether every step is to yield one token of a sequence, as someone else decides what follows."""
        self.drafts = DraftCounts()
        self._step = 0
        self._now = 0.0
        self._flights: deque[Flight] = deque()
        self._followed: dict[int, Leader] = {}
        """By sequence that waits for its prefix: who computes it."""

    def weigh_tenants(self, weights: Mapping[str, float]) -> None:
        """Tenants have these shares from now on, where the policy knows tenants."""
        self._queue.weigh(weights)

    # -- requests ----------------------------------------------------------------------------------------------

    def add(self, request: Request) -> list[Sequence]:
        """Accept a request; raises RequestTooLarge when it could never run."""
        sequences = self._roster.enter(request, longest_total(request, self.limits, self.kv))
        self.kv.name_blocks(sequences[0])  # the others share its blocks
        self._deadlines.watch(sequences[0])
        return sequences

    def abort(self, request_id: str, status: Status = Status.ABORTED) -> None:
        """End all sequences of a request; one that is not known has ended already."""
        for seq in self._roster.sequences_of(request_id):
            self.end(seq, status)

    def end(self, seq: Sequence, status: Status) -> None:
        """End one sequence, for a reason the scheduler does not see (a stop string, a failure, a dropped beam)."""
        if not seq.is_finished:
            self._roster.end(seq, status)

    def fork(self, parent: Sequence, last_token: int) -> Sequence:
        """A new sequence that shares all that `parent` has computed and differs in its last token (beam search)."""
        return self._roster.fork(parent, last_token)

    def rewrite(self, seq: Sequence, last_token: int) -> None:
        """Someone else decided on a sequence's last token (beam search); its row learns of it by a new admission."""
        assert not seq.num_pending, f"{seq} has tokens that were not read yet"
        if seq.tokens[-1] == last_token:
            return
        seq.tokens[-1] = last_token
        if seq.status is Status.RUNNING:
            self._roster.pause(seq)

    def hold(self, request_id: str) -> None:
        """Leave a request out of every step until it is let go: its reader is slow, or others are on trial."""
        for seq in self._roster.sequences_of(request_id):
            self._roster.hold(seq)

    def resume(self, request_id: str) -> None:
        """A held request may run again; one that is not held, or has ended, is left as it is."""
        for seq in self._roster.sequences_of(request_id):
            self._roster.resume(seq)

    def take_finished(self) -> list[Sequence]:
        """Sequences that ended since the last call, each exactly once."""
        return self._roster.take_finished()

    @property
    def kv_of_ranks(self) -> Seq[KVManager]:
        return (self.kv,)

    @property
    def stats(self) -> RosterStats:
        return self._roster.stats

    @property
    def running(self) -> list[Sequence]:
        return self._roster.running

    @property
    def num_waiting(self) -> int:
        return self._roster.num_waiting

    @property
    def num_held(self) -> int:
        return self._roster.num_held

    def sequences_of(self, request_id: str) -> list[Sequence]:
        """The sequences of a live request; none of one that has ended or never came."""
        return self._roster.sequences_of(request_id)

    @property
    def live_requests(self) -> list[str]:
        """Ids of all requests that have not ended."""
        return self._roster.request_ids()

    @property
    def draft_method(self) -> str:
        """How drafts are made; nothing where there are none."""
        return "" if self._draft_length is None else self._draft_length.method

    @property
    def has_work(self) -> bool:
        return bool(self._flights) or not self._roster.is_idle

    @property
    def settled_step(self) -> int:
        """The last step of which it is certain that it, and all before it, have run or never will."""
        return self._flights[0].step - 1 if self._flights else self._step

    @property
    def can_advance(self) -> bool:
        """Whether a step now could do anything; where all that is live is held, only time can."""
        return bool(self._flights) or self._roster.can_advance

    # -- a step ------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan:
        """Plan the next step."""
        self._step += 1
        self._now = now
        self.kv.begin_step(self._step)
        self._end_overdue()
        self._start_over_outgrown()
        self._make_way_for_better()
        self._make_room_for_running()
        builder = StepBuilder(self._step, self.token_budget)
        if self._draft_length is not None:
            builder.most_drafts = self._most_drafts(self._draft_length)
        running = self._roster.running
        self._granting.decodes(builder, running if self._turns is None else self._turns.take(running))
        self._pace_prompts(builder)
        self._grant_prompts(builder)
        self._admit_waiting(builder)
        self._settle(builder)
        plan, flight = builder.build(self._roster.take_released(), self.kv.take_moves())
        if plan.rows:
            self._flights.append(flight)
            if self._turns is not None:
                self._turns.note(flight.sampling)
        return plan

    def update(self, result: StepResult) -> StepUpdate:
        """Take in the tokens of the oldest step that is still in flight."""
        flight = self._flights.popleft()
        assert flight.step == result.step, f"result of step {result.step}, expected {flight.step}"
        self._readout_pace.observe(flight.load, result.elapsed)
        if self._pacer is not None:
            self._pacer.observe(flight.load, result.elapsed)
        if self._draft_length is not None:
            self._learn_of_drafts(self._draft_length, flight, result)
        return take_in(flight, result, self._roster, self.kv)

    def rollback(self, step: int) -> list[Sequence]:
        """Step `step` did not run, nor will those behind it. Returns the live sequences that were in it.

        Everything the lost steps touched starts over from what earlier steps left in the prefix cache.
        """
        lost = [flight for flight in self._flights if flight.step >= step]
        self._flights = deque(flight for flight in self._flights if flight.step < step)
        for flight in lost:
            for seq, drafts in zip(flight.sampling, flight.num_drafts or [0] * len(flight.sampling), strict=True):
                seq.num_pending -= 1 + drafts
                seq.num_unverified -= drafts
        self.kv.forget_since(step)
        swapped = self.kv.host.stored_since(step)
        for seq in self._roster.sequences():
            if seq.status in {Status.RUNNING, Status.PAUSED} or seq.id in swapped:
                self._roster.drop(seq, keep=False)
        return [seq for flight in lost[:1] for seq in (*flight.sampling, *flight.others) if not seq.is_finished]

    # -- the rules of a step, in the order they apply ----------------------------------------------------------

    def _end_overdue(self) -> None:
        for seq, status in self._deadlines.due(self._now):
            self.abort(seq.request.id, status)

    def _start_over_outgrown(self) -> None:
        """Sequences that outgrew the model's first position angles are computed anew with the second."""
        limit = self.limits.recompute_beyond
        if limit is None:
            return
        for seq in self._roster.sequences():
            if seq.fewest_tokens > limit and seq.kv_variant != LONG_VARIANT:
                if seq.status in HOLDS_KV or seq.status is Status.RUNNING:
                    self._roster.drop(seq)
                seq.kv_variant = LONG_VARIANT
                seq.block_names = []

    def _make_way_for_better(self) -> None:
        """Let waiting sequences that outrank running ones have their rows, and their blocks where needed."""
        roster, queue = self._roster, self._queue
        promoted: list[Sequence] = []
        while queue.preempts and len(promoted) < MAX_DISPLACED and roster.running:
            best, worst = queue.peek(), queue.victim(roster.running)
            if best is None or not queue.outranks(best, worst):
                break
            if not promoted and self._cost_to_admit(best, self._find(best)) > self.kv.num_free:
                roster.free_blocks(besides=best)
                continue
            if roster.num_free_rows <= len(promoted):
                roster.pause(worst)
            queue.remove(best)
            promoted.append(best)
        for seq in promoted:
            queue.push(seq)

    def _make_room_for_running(self) -> None:
        """Preempt until every running sequence can take at least one more token."""
        kv, lookahead, running = self.kv, self._lookahead, self._roster.running
        most_each = (2 + lookahead // kv.block_size) * len(kv.groups)
        while kv.num_free < len(running) * most_each:
            needed = 0
            for seq in running:
                # a prompt that is read out ends where it is computed
                target = min(seq.num_computed + 1, seq.max_total) + lookahead
                if target > seq.num_slots:
                    kv.trim(seq)
                    needed += kv.cost_of_growth(seq, target)
            if needed <= kv.num_free:
                return
            self._roster.free_blocks()

    def _most_drafts(self, draft_length: DraftLength) -> int:
        """Drafts that each decode of the step may have."""
        running, limit = self._roster.running, self.limits.recompute_beyond
        if self.drafts_are_off:
            return 0
        each_turn = -(-len(running) // self.limits.num_stages)  # what times of steps are remembered by
        most = draft_length.choose(max(1, each_turn))
        # what outgrows the first angles must be computed with the second from the very token on
        reach = 0 if limit is None else limit - 2 * (most + 1)
        if limit is not None and any(seq.num_tokens > reach and seq.kv_variant != LONG_VARIANT for seq in running):
            return 0
        return most

    def _learn_of_drafts(self, draft_length: DraftLength, flight: Flight, result: StepResult) -> None:
        decodes = flight.load.decodes
        counts = [] if result.counts is None else result.counts[:decodes]
        accepted = [count - 1 for count in counts]
        seconds = None if flight.has_prompts else result.elapsed
        drafting = sum(count > 0 for count in flight.num_drafts)
        forced = sum(map(len, result.forced.values()))
        draft_length.observe(decodes, flight.most_drafts, accepted, seconds, verified=drafting > 0, forced=forced)
        self.drafts += DraftCounts(drafting, result.num_drafted, sum(accepted))

    def _pace_prompts(self, builder: StepBuilder) -> None:
        """Leave prompts what the budget, and the pace of running streams, allow."""
        builder.load.decodes = len(builder.sampling)
        builder.prompt_tokens_left = builder.tokens_left
        if self._pacer is not None:
            builder.load.decode_context = sum(seq.num_computed for seq in builder.sampling)
            context = builder.unfinished[0].num_computed if builder.unfinished else 0
            builder.prompt_tokens_left = self._pacer.prompt_tokens(builder.load, context, builder.tokens_left)
        builder.readout_tokens_left = self._readout_pace.tokens(builder.load.decodes, builder.prompt_tokens_left)

    def _grant_prompts(self, builder: StepBuilder) -> None:
        """Go on with prompts that began in earlier steps."""
        for seq in builder.unfinished:
            self._granting.chunk(builder, seq)
            self._granting.promise_rest(builder, seq)

    def _admit_waiting(self, builder: StepBuilder) -> None:
        """Give rows to waiting sequences, in the policy's order, as long as tokens, rows and blocks last."""
        deferred: list[Sequence] = []
        followed, self._followed = self._followed, {}
        tokens_to_search = SEARCHES * self.limits.max_num_batched_tokens
        while self._roster.num_free_rows and builder.prompt_tokens_left > 0 and tokens_to_search > 0:
            seq = self._queue.peek(readouts=builder.readout_tokens_left > 0)
            if seq is None or (self.limits.whole_prompts and not self._fits_whole(builder, seq)):
                break
            if seq.request.source is not None and builder.num_sources >= self.limits.max_encoded:
                break  # an encoder takes as long as many decodes
            leader = followed.get(seq.id)
            if leader is None or not leader.is_ahead(builder):
                tokens_to_search -= len(seq.tokens)
                found = self._find(seq)
                leader = self._leader(builder, seq, found)
            if seq.num_pending or leader is not None:
                self._queue.remove(seq)
                deferred.append(seq)
                if leader is not None:
                    self._followed[seq.id] = leader
                continue
            if self._cost_to_admit(seq, found) > self._blocks_for_new(builder):
                # a paused sequence gives up its blocks for one that stands before it
                others = [paused for paused in self._roster.paused.values() if paused is not seq]
                if not others:
                    break
                self._roster.preempt(self._queue.victim(others))
                continue
            self._admit(builder, seq, found)
        for seq in deferred:
            self._queue.push(seq)
        self.num_deferred += len(deferred)

    def _fits_whole(self, builder: StepBuilder, seq: Sequence) -> bool:
        """Whether a prompt that is not cut fits into the step; one beyond the budget has a step of its own."""
        return seq.num_tokens <= builder.prompt_tokens_left or not builder.others

    def _settle(self, builder: StepBuilder) -> None:
        """What follows from the grants: names for computed blocks, siblings of computed prompts, accounts."""
        for seq in builder.prompts:
            if seq.num_computed >= seq.register_at:
                self.kv.register(seq)
            if seq.num_computed >= seq.num_prompt:
                self._roster.fork_siblings(seq)
        if self._queue.charges:
            self._queue.charge(builder.sampling, builder.sampling_counts)
            self._queue.charge(builder.others, builder.other_counts)

    # -- admission ---------------------------------------------------------------------------------------------

    def _find(self, seq: Sequence) -> tuple[BlockTable, Hit] | None:
        """What the prefix cache holds of a queued sequence; None for one that has blocks of its own."""
        return None if seq.status in HOLDS_KV else self.kv.find(seq)

    def _leader(self, builder: StepBuilder, seq: Sequence, found: tuple[BlockTable, Hit] | None) -> Leader | None:
        """Whoever computes in this very step what `seq` would compute first: when it is done, that is a hit."""
        if found is None or not builder.computing:
            return None
        table, hit = found
        if hit.num_blocks >= len(table.names):
            return None
        ahead = builder.computing.get(table.names[hit.num_blocks])
        return None if ahead is None else Leader.of(ahead, seq, self.kv.block_size)

    def _cost_to_admit(self, seq: Sequence, found: tuple[BlockTable, Hit] | None) -> int:
        """Free blocks it takes to hold all tokens of a waiting sequence, as far as it holds them at once."""
        total = seq.num_tokens + self._lookahead
        chunk = self.limits.max_num_batched_tokens + self._lookahead
        if found is not None:
            cost = self.kv.cost_of_hit(found[1], total, chunk)
        elif seq.status is Status.SWAPPED:
            cost = self.kv.cost_of_return(seq, total)
        else:
            cost = self.kv.cost_of_growth(seq, total)
        # blocks leave a sliding window as others come: without this bound a prompt could wait in an empty cache
        return min(cost, self.kv.most_blocks(total, chunk))

    def _adapter_slot(self, seq: Sequence) -> int:
        adapter = seq.request.prompt.adapter
        return -1 if adapter is None or self.adapters is None else self.adapters.slot_of(adapter.key)

    def _blocks_for_new(self, builder: StepBuilder) -> int:
        """Free blocks that running sequences do not need soon."""
        reserve = self.kv.device.pool.num_blocks // HEADROOM if self._roster.running else 0
        return self.kv.num_free - builder.promised - reserve

    def _admit(self, builder: StepBuilder, seq: Sequence, found: tuple[BlockTable, Hit] | None) -> None:
        self._roster.seat(seq, found)
        if seq.first_granted is None:
            seq.first_granted, seq.num_cached = self._now, seq.num_computed
        num_computed, num_deltas = seq.num_computed, len(builder.table_deltas)
        self._granting.chunk(builder, seq)
        self._granting.promise_rest(builder, seq)
        del builder.table_deltas[num_deltas:]  # the admission carries the whole table
        builder.num_sources += seq.request.source is not None
        builder.admitted.append(
            Admission(
                row=seq.row,
                request_id=seq.request.id,
                index=seq.index,
                params=seq.request.params,
                tokens=seq.tokens.copy(),
                num_prompt=seq.num_prompt,
                num_computed=num_computed,
                tables=self.kv.table_from(seq, 0),
                stop_ids=list(seq.stop_ids),
                bad_words=list(seq.request.bad_words),
                length_for_angles=seq.num_tokens if seq.kv_variant == LONG_VARIANT else seq.num_prompt,
                pooling=seq.request.pooling,
                adapter=self._adapter_slot(seq),
                media=seq.request.media,
                source=seq.request.source,
            )
        )
