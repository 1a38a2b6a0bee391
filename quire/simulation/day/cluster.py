"""Cluster: all instances on one clock: conversations begin, requests are placed, KV goes from one to another."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf

from quire.simulation.day.conversation import Conversation, Turn
from quire.simulation.day.instance import Engine, Instance
from quire.simulation.day.job import Job
from quire.simulation.day.placing import Placing
from quire.simulation.day.record import Record

_REPORT_EVERY = 1000
"""Requests between two reports of progress."""


class Cluster:
    """Plays one day."""

    def __init__(self, engine: Engine, instances: Sequence[Instance], placing: Placing, record: Record) -> None:
        self._engine = engine
        self._instances = instances
        self._placing = placing
        self._record = record
        self._order = 0
        self._due: list[tuple[float, int, Instance, int]] = []
        """When instances are to be looked at, with their version then."""
        self._turns: list[tuple[float, int, Conversation, Turn]] = []
        """Next turns of conversations, by when they come."""

    def run(self, conversations: Iterator[Conversation], progress: Callable[[int], None] = lambda _: None) -> None:
        """Until every conversation is over; `progress` is told now and then how many more requests have come."""
        upcoming = next(conversations, None)
        while True:
            start = inf if upcoming is None else upcoming.start
            turn = self._turns[0][0] if self._turns else inf
            due = self._due[0][0] if self._due else inf
            if due <= min(start, turn):
                if due == inf:
                    break
                self._look_at_next()
            elif turn <= start:
                now, _, conversation, said = heappop(self._turns)
                self._ask(conversation, said, now, progress)
            else:
                assert upcoming is not None
                self._go_on(upcoming, upcoming.start)
                upcoming = next(conversations, None)
        progress(self._record.arrived % _REPORT_EVERY)

    def _go_on(self, conversation: Conversation, now: float) -> None:
        """A conversation begins, or an answer of it was read: its next turn will come, if there is one."""
        turn = next(conversation.turns, None)
        if turn is not None:
            self._order += 1
            pause = turn.pause if conversation.said else 0.0
            heappush(self._turns, (now + pause, self._order, conversation, turn))

    def _ask(self, conversation: Conversation, turn: Turn, now: float, progress: Callable[[int], None]) -> None:
        record = self._record
        record.came(now)
        if record.arrived % _REPORT_EVERY == 0:
            progress(_REPORT_EVERY)
        if not conversation.said:
            conversation.first = turn.asked
        own = conversation.said + turn.asked
        job = Job(conversation, now, conversation.stretches(own), turn.answered)
        room = min(self._engine.limits.max_model_len, self._engine.device_tokens - self._engine.block_size)
        if job.prompt >= room:
            record.refused += 1  # and its user gives up
            return
        if job.answered > room - job.prompt:
            job.answered = room - job.prompt
            record.cut_short += 1
        conversation.said = own + job.answered
        self._place(job, now)

    def _place(self, job: Job, now: float) -> None:
        placed = self._placing.place(job, now)
        computing, ready = placed.client, now
        if placed.decoder is not None:
            job.decoder = placed.decoder.number
            job.sent = self._engine.whole_blocks(placed.decoder.prefixes.find(job.stretches).device)
            placed.decoder.expected += job.prompt
        if placed.holder is not None:
            ready = self._pull(job, computing, placed.holder, now)
        computing.add(job, now, ready)
        self._watch(computing)

    def _pull(self, job: Job, computing: Instance, holder: Instance, now: float) -> float:
        """KV of a prompt comes from a peer, where that takes less time than computing it; when it is there."""
        engine = self._engine
        have = computing.prefixes.find(job.stretches).total
        tokens = engine.whole_blocks(min(holder.prefixes.find(job.stretches).device, job.prompt - 1)) - have
        seconds = tokens * engine.token_bytes / engine.transfer_bandwidth
        if tokens <= 0 or max(0.0, holder.link_free - now) + seconds > tokens * engine.seconds_per_token:
            return now
        holder.link_free = max(holder.link_free, now) + seconds
        job.fetched, job.origin = have + tokens, "peer"
        self._record.transferred += tokens * engine.token_bytes
        return holder.link_free

    def _look_at_next(self) -> None:
        now, _, instance, version = heappop(self._due)
        if version != instance.version:
            return
        for job in instance.advance(now):
            if job.decoder >= 0 and job.told < job.answered:
                self._hand_over(job, instance, now)
                continue
            if job.decoder >= 0:
                self._instances[job.decoder].expected -= job.prompt
            self._record.over(now, job.arrival)
            self._go_on(job.conversation, now)
        self._watch(instance)

    def _hand_over(self, job: Job, source: Instance, now: float) -> None:
        """The prompt is computed and its first token told: another instance goes on when the last KV is there."""
        decoder = self._instances[job.decoder]
        decoder.expected -= job.prompt
        ready = source.send(job, job.prompt, now)
        job.fetched, job.origin = self._engine.whole_blocks(job.prompt), "peer"
        job.prompt += 1
        job.stretches = job.conversation.stretches(job.prompt - job.shared)
        job.decoder = -1
        self._record.handed_over += 1
        decoder.add(job, now, ready)
        self._watch(decoder)

    def _watch(self, instance: Instance) -> None:
        if instance.until < inf:
            self._order += 1
            heappush(self._due, (instance.until, self._order, instance, instance.version))
