"""Instance: one engine of a cluster, from one change to the next.

A step is formed by the rules of the scheduler under its usual policy: every decode gets a token, prompts get what is
left of the budget in the order they came, a prompt begins when its blocks are free, and the next step is planned while
one runs. While nothing joins or ends, steps differ only in how long their contexts are: these are leapt over together.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf

from quire.config.resolved import StepLimits
from quire.config.server import EngineRole
from quire.router.choice import rendezvous_weight
from quire.scheduler.scheduler import HEADROOM
from quire.simulation.cost import CostModel, StepWork
from quire.simulation.day.conversation import Stretch
from quire.simulation.day.job import Job
from quire.simulation.day.prefixes import Prefixes
from quire.simulation.day.record import Record

_NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class Engine:
    """What all instances of a cluster are alike in. Rooms are in tokens, rates in bytes a second."""

    cost: CostModel
    limits: StepLimits
    block_size: int
    device_tokens: int
    host_tokens: int
    disk_tokens: int
    token_bytes: int
    """KV of one token, of all ranks."""
    disk_bandwidth: float
    transfer_bandwidth: float
    """At which an instance sends KV to others."""
    seconds_per_token: float
    """What computing a token of a prompt takes."""
    async_steps: bool = True

    def whole_blocks(self, tokens: int) -> int:
        """As many of them as fill blocks, which alone have names."""
        return tokens // self.block_size * self.block_size


@dataclass(slots=True)
class _Steps:
    """What the device is busy with: equal steps, one after the other."""

    start: float
    seconds: float
    """Of each."""
    count: int
    chunks: list[tuple[Job, int]]
    """Prompts that are computed in it, with how many tokens; then it is one step."""

    @property
    def end(self) -> float:
        return self.start + self.count * self.seconds


class Instance:
    """Told of time by its cluster: `until` is when something happens here next by itself."""

    adapters: frozenset[str] = frozenset()
    kv_address = "tcp://simulated"
    """Nobody connects, but whoever places requests wants to know that peers get KV from it."""

    def __init__(self, number: int, engine: Engine, record: Record, role: EngineRole = "both") -> None:
        self.number = number
        self.role: EngineRole = role
        self.max_model_len = engine.limits.max_model_len
        self.prefixes = Prefixes(engine.device_tokens, engine.host_tokens, engine.disk_tokens)
        self.until = inf
        self.version = 0
        """Changes with `until`."""
        self.link_free = 0.0
        """When all KV is sent that others asked of it."""
        self.expected = 0
        """Tokens of requests whose prompts others compute for it."""
        self.now = 0.0
        """For `load`: set by whoever asks."""
        self._name = f"instance {number}"
        self._engine, self._cost, self._limits = engine, engine.cost, engine.limits
        self._record = record
        self._queue: deque[Job] = deque()
        self._awaiting: list[tuple[float, int, Job]] = []
        """Jobs that wait for their KV from elsewhere, by when it is there."""
        self._order = 0
        self._queued_tokens = 0
        self._computing: list[Job] = []
        self._computing_tokens = 0
        self._rows: dict[Job, None] = {}
        """Decodes, the latest last."""
        self._ends: list[tuple[int, int, int, Job]] = []
        """By tick: who ends there, if its row is still the same."""
        self._context = 0
        """Tokens of all decodes."""
        self._shared = 0
        """Tokens of decodes and of prompts being computed that are held once for all."""
        self._tick = 0
        self._steps: _Steps | None = None
        self._last_start = 0.0
        """When the newest step began, and with it the planning of the next."""
        self._disk_free = 0.0

    # -- as routing sees it ------------------------------------------------------------------------------------

    @property
    def load(self) -> int:
        """Tokens of the requests it has: prompts, and what is answered so far."""
        load = self._queued_tokens + self._computing_tokens + self._context + self.expected
        steps = self._steps
        if steps is not None and not steps.chunks:
            load += len(self._rows) * int((self.now - steps.start) / steps.seconds)
        return load

    def weight(self, key: bytes) -> bytes:
        return rendezvous_weight(key, self._name)

    # -- what happens ------------------------------------------------------------------------------------------

    def add(self, job: Job, now: float, ready: float = 0.0) -> None:
        """A request comes; `ready`: what it gets from a peer is there only then."""
        job.computed = 0
        self._queued_tokens += job.prompt
        ready = max(now, ready, self._read_from_disk(job, now))
        job.joined = ready
        if ready > now:
            self._order += 1
            heappush(self._awaiting, (ready, self._order, job))
        else:
            self._queue.append(job)
        if self._steps is None:
            self._begin(now)
        else:
            self._cut(ready)

    def advance(self, now: float) -> list[Job]:
        """It is `until`: end the steps and begin the next ones. Returns jobs that are over here."""
        over = [] if self._steps is None else self._end(self._steps)
        self._begin(now)
        return over

    def _begin(self, now: float) -> None:
        while self._awaiting and self._awaiting[0][0] <= now + _NEARLY:
            self._queue.append(heappop(self._awaiting)[-1])
        self._make_room(now)
        self._steps = self._step_with_prompts(now) or (self._leap(now) if self._rows else None)
        if self._steps is None:
            self._set_until(self._awaiting[0][0] if self._awaiting else inf)
            return
        self._note_steps()
        if self._awaiting:
            self._cut(self._awaiting[0][0])

    def _note_steps(self) -> None:
        assert self._steps is not None
        self._last_start = self._steps.end - self._steps.seconds
        self._set_until(self._steps.end)

    def _set_until(self, until: float) -> None:
        self.until = until
        self.version += 1

    def _cut(self, time: float) -> None:
        """Leap no further than to where a job that comes at `time` can join."""
        steps = self._steps
        if steps is None or steps.chunks or time >= steps.end:
            return
        count = max(1, ceil((time - steps.start) / steps.seconds - _NEARLY)) + self._engine.async_steps
        if count < steps.count:
            steps.count = count
            self._note_steps()

    # -- steps that begin --------------------------------------------------------------------------------------

    def _leap(self, now: float) -> _Steps:
        """As many steps as change nothing but contexts."""
        while self._ends[0][1] != self._ends[0][-1].row:
            heappop(self._ends)
        rows = len(self._rows)
        count = max(1, min(self._ends[0][0] - self._tick, self._free // rows))
        if self._queue and self._queue[0].joined > self._last_start:
            count = 1  # it came too late for the plan of this step
        work = self._decodes(self._context + rows * (count - 1) // 2)
        work.swapped_blocks = self.prefixes.fit(self._free - rows * count) // self._engine.block_size // count
        return _Steps(now, self._cost.seconds(work), count, [])

    def _step_with_prompts(self, now: float) -> _Steps | None:
        """None where no prompt can go on."""
        work, chunks = self._decodes(self._context), list[tuple[Job, int]]()
        for job in self._computing:
            self._grant(job, work, chunks)
        is_planned_ahead = self._engine.async_steps and bool(self._rows or self._computing)
        while self._queue and work.num_tokens < self._limits.max_num_batched_tokens:
            job = self._queue[0]
            if (is_planned_ahead and job.joined > self._last_start) or not self._has_room(job):
                break
            self._queue.popleft()
            self._admit(job, work, now)
            self._grant(job, work, chunks)
        if not chunks:
            return None
        work.swapped_blocks += self.prefixes.fit(self._free - len(self._rows)) // self._engine.block_size
        return _Steps(now, self._cost.seconds(work), 1, chunks)

    def _decodes(self, context: int) -> StepWork:
        """A step of all decodes, if they have so many tokens together."""
        rows = len(self._rows)
        visible = self._cost.visible(context // rows) * rows if rows and self._cost.has_windows else context
        return StepWork(num_tokens=rows, context=visible, pairs=visible + rows)

    def _grant(self, job: Job, work: StepWork, chunks: list[tuple[Job, int]]) -> None:
        budget = self._limits.max_num_batched_tokens - work.num_tokens
        count = min(job.prompt - job.computed, budget, self._limits.long_prefill_token_threshold or budget)
        if count > 0:
            work.num_tokens += count
            work.context += self._cost.visible(job.computed)
            work.pairs += count * self._cost.visible(job.computed + (count + 1) // 2)
            chunks.append((job, count))

    def _admit(self, job: Job, work: StepWork, now: float) -> None:
        found = self.prefixes.find(job.stretches)
        here = found.device + found.host
        job.computed = min(self._engine.whole_blocks(max(here, job.fetched)), job.prompt - 1)
        work.swapped_blocks += found.host // self._engine.block_size
        if not job.told:
            self._record.found(now, job, found.device, found.host)
        self.prefixes.take(job.stretches)
        self._queued_tokens -= job.prompt
        self._computing.append(job)
        self._computing_tokens += job.prompt
        self._shared += job.shared

    # -- steps that end ----------------------------------------------------------------------------------------

    def _end(self, steps: _Steps) -> list[Job]:
        """Count what they did. Returns jobs that are over here."""
        rows, end = len(self._rows), steps.end
        prompts = sum(count for _, count in steps.chunks)
        self._record.stepped(self.number, steps.start, steps.seconds, steps.count, rows, prompts)
        self._tick += steps.count
        self._context += rows * steps.count
        over = self._ended()
        for job, count in steps.chunks:
            job.computed += count
            if job.decoder >= 0:
                self.send(job, job.computed, end)
            if job.computed >= job.prompt and self._prompt_done(job, end):
                over.append(job)
        return over

    def _ended(self) -> list[Job]:
        over = []
        while self._ends and self._ends[0][0] <= self._tick:
            _, row, _, job = heappop(self._ends)
            if row == job.row:
                del self._rows[job]
                self._stop_decoding(job)
                over.append(job)
        return over

    def _prompt_done(self, job: Job, now: float) -> bool:
        """It has its next token; whether it is over here."""
        self._computing.remove(job)
        self._computing_tokens -= job.prompt
        job.told += 1
        if job.told == 1:
            self._record.began(now, job.arrival)
        else:
            self._record.went_on(now, job.last_told)
        job.last_told = now
        if job.told >= job.answered or job.decoder >= 0:
            self._shared -= job.shared
            self.prefixes.give(Stretch(job.stretches[-1].name, job.prompt - job.shared))
            return True
        job.row += 1
        job.end_tick = self._tick + job.answered - job.told
        self._order += 1
        heappush(self._ends, (job.end_tick, job.row, self._order, job))
        self._rows[job] = None
        self._context += job.prompt
        return False

    def _stop_decoding(self, job: Job) -> None:
        """Its blocks may go; what it has is its prompt from now on."""
        job.row += 1
        told = job.answered - (job.end_tick - self._tick)
        job.prompt += told - job.told
        job.told = told
        self._context -= job.prompt
        self._shared -= job.shared
        self.prefixes.give(Stretch(job.stretches[-1].name, job.prompt - job.shared))

    def send(self, job: Job, tokens: int, now: float) -> float:
        """KV of the first `tokens` of a prompt goes to a peer as far as it has not; when it is there."""
        tokens = self._engine.whole_blocks(tokens)
        if tokens > job.sent:
            size = (tokens - job.sent) * self._engine.token_bytes
            self.link_free = max(self.link_free, now) + size / self._engine.transfer_bandwidth
            self._record.transferred += size
            job.sent = tokens
        return max(self.link_free, now)

    # -- room --------------------------------------------------------------------------------------------------

    @property
    def _free(self) -> int:
        """Tokens that the device has room for; half of each sequence's last block is empty."""
        num_sequences = len(self._rows) + len(self._computing)
        held = self._context + self._computing_tokens - self._shared + num_sequences * self._engine.block_size // 2
        return self._engine.device_tokens - held

    def _has_room(self, job: Job) -> bool:
        """Whether it may begin: a row, and its blocks beside those that others will need soon."""
        num_running = len(self._rows) + len(self._computing)
        reserve = self._engine.device_tokens // HEADROOM if num_running else 0
        own = job.prompt - job.shared + self._engine.block_size // 2
        return num_running < self._limits.max_num_seqs and own <= self._free - reserve

    def _make_room(self, now: float) -> None:
        """The latest decodes make way until each of the others can take one more token."""
        while len(self._rows) > 1 and self._free < len(self._rows):
            job, _ = self._rows.popitem()
            self._stop_decoding(job)
            job.prompt += 1  # the token that was told, but not yet computed
            job.stretches = (*job.stretches[:-1], Stretch(job.stretches[-1].name, job.prompt - job.shared))
            job.computed = job.fetched = 0
            job.last_told = now
            self._record.preempted += 1
            self._queued_tokens += job.prompt
            self._queue.appendleft(job)

    def _read_from_disk(self, job: Job, now: float) -> float:
        """When what only the disk has of a prompt is read; at once where that takes longer than computing it."""
        found = self.prefixes.find(job.stretches)
        seconds = found.disk * self._engine.token_bytes / self._engine.disk_bandwidth
        if not found.disk or job.fetched or seconds > found.disk * self._engine.seconds_per_token:
            return now
        self._disk_free = max(self._disk_free, now) + seconds
        job.fetched, job.origin = found.total, "disk"
        return self._disk_free
