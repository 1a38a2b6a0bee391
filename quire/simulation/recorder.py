"""Recorder: turns what happens to a replica into its metrics, at a cost of changes and not of tokens.

A sequence that gets a token in two steps running shares its inter-token time with all the others of the batch, so only
those that come, come back or go are looked at one by one.
"""

from dataclasses import dataclass

from quire.core.plan import StepPlan
from quire.core.sequence import Sequence
from quire.core.status import FINISH_REASONS, Status
from quire.scheduler.scheduler import Scheduler
from quire.simulation.fairness import Contention
from quire.simulation.goals import LatencyGoals
from quire.simulation.metrics import Metrics, TenantMetrics
from quire.simulation.timeline import Bin
from quire.simulation.workload import SimulatedRequest

SAMPLE_SHARE = 16
"""Measuring waste looks at every block, so it is done ever more rarely: after a sixteenth of the steps so far."""


class LiveRequest:
    """A request that has not ended."""

    __slots__ = ("arrival", "first_token", "input_tokens", "longest", "open", "queued", "tenant", "tenant_name")

    def __init__(self, request: SimulatedRequest, tenant: TenantMetrics) -> None:
        self.arrival = request.arrival
        self.input_tokens = request.input_tokens
        self.tenant_name = request.tenant
        self.tenant = tenant
        self.open = 0
        """Sequences that have not ended."""
        self.queued = True
        self.first_token: float | None = None
        """When it came."""
        self.longest = 0
        """Tokens of its longest answer."""


class Stream:
    """A sequence as its reader sees it."""

    __slots__ = ("decoding", "ended", "last_token", "request")

    def __init__(self, request: LiveRequest, last_token: float | None = None) -> None:
        self.request = request
        self.last_token = last_token
        """When it last got a token before it lost its row; None before its first."""
        self.decoding = False
        """Whether it was in the last step and got a token."""
        self.ended = False
        request.open += 1


@dataclass(slots=True)
class StepRecord:
    """A step on its way: what is needed to read its result."""

    end: float
    gap: float
    """Seconds since the end of the step before."""
    fresh: list[tuple[Stream, float | None]]
    """Streams that get a token now and did not in the step before, with the time of their last one."""


class Recorder:
    """Watches one replica."""

    def __init__(self, scheduler: Scheduler, goals: LatencyGoals | None = None) -> None:
        self.metrics = Metrics()
        self._goals = goals
        self._scheduler = scheduler
        self._contention = Contention(self.metrics)
        self._streams: dict[tuple[str, int], Stream] = {}
        self._by_row: dict[int, Stream] = {}
        self._awaiting: dict[int, Stream] = {}
        """By row: streams that have no token since they got it."""
        self._last_end = 0.0
        self._next_sample = 0
        self._sampled_busy = 0.0
        self._usage = scheduler.kv.usage()

    # -- requests ----------------------------------------------------------------------------------------------

    def arrived(self, request: SimulatedRequest, sequences: list[Sequence]) -> None:
        tenant = self.metrics.tenant(request.tenant)
        tenant.arrived += 1
        live = LiveRequest(request, tenant)
        for seq in sequences:
            self._streams[request.id, seq.index] = Stream(live)
        self._contention.arrived(request.tenant)

    def refused(self, request: SimulatedRequest) -> None:
        tenant = self.metrics.tenant(request.tenant)
        tenant.arrived += 1
        tenant.refused += 1

    def forked(self, parent: Sequence, child: Sequence, now: float) -> None:
        """A beam was split; the child's reader has read what the parent's had."""
        live = self._streams[parent.request.id, parent.index].request
        self._streams[child.request.id, child.index] = Stream(live, last_token=now)

    def ended(self, sequences: list[Sequence], now: float) -> list[str]:
        """Sequences that are over, each exactly once. Returns the ids of the requests that ended with them."""
        metrics, requests = self.metrics, []
        for seq in sequences:
            stream = self._streams.pop((seq.request.id, seq.index))
            stream.ended = True
            metrics.end = max(metrics.end, now)
            metrics.reservations.add(seq.num_prompt, seq.num_output, self._scheduler.limits.max_model_len)
            reason = FINISH_REASONS[seq.status]
            if seq.status is Status.ABORTED:
                metrics.dropped_beams += 1
            else:
                metrics.reasons[reason] = metrics.reasons.get(reason, 0) + 1
            live = stream.request
            live.tenant.output_tokens += seq.num_output
            live.longest = max(live.longest, seq.num_output)
            live.open -= 1
            if not live.open:
                self._request_ended(live, now)
                requests.append(seq.request.id)
        return requests

    def _request_ended(self, live: LiveRequest, now: float) -> None:
        self._leaves_queue(live, now)
        self.metrics.input_tokens += live.input_tokens
        live.tenant.ended += 1
        live.tenant.total.add(now - live.arrival)
        if live.first_token is not None:
            ttft, after = live.first_token - live.arrival, now - live.first_token
            if live.longest > 1:
                live.tenant.tpot.add(after / (live.longest - 1))
            self.metrics.good += self._goals is not None and self._goals.are_met(ttft, after, live.longest)

    def _leaves_queue(self, live: LiveRequest, now: float) -> None:
        if live.queued:
            live.queued = False
            live.tenant.queue.add(now - live.arrival)
            self._contention.left_queue(live.tenant_name)

    # -- steps -------------------------------------------------------------------------------------------------

    def planned(self, plan: StepPlan, now: float) -> None:
        """Rows come and go as a plan made at `now` says."""
        by_row = self._by_row
        for row in plan.released:
            stream = by_row.pop(row)
            self._awaiting.pop(row, None)
            if stream.decoding:
                stream.decoding = False
                stream.last_token = self._last_end
                self._contention.decoding(stream.request.tenant_name, -1)
        for admission in plan.admitted:
            stream = self._streams[admission.request_id, admission.index]
            by_row[admission.row] = self._awaiting[admission.row] = stream
            self._leaves_queue(stream.request, now)

    def executed(self, plan: StepPlan, start: float, end: float) -> StepRecord:
        """A planned step ran from `start` to `end`."""
        fresh = self._fresh_rows(plan)
        prompts = self._prompt_counts(plan, len(fresh))
        self._contention.step(end - start, prompts)
        streams = [self._awaiting.pop(row) for row in fresh]
        # by the time its result is read, a stream may have lost its row again
        record = StepRecord(end, end - self._last_end, [(stream, stream.last_token) for stream in streams])
        for stream in streams:
            stream.decoding = True
            self._contention.decoding(stream.request.tenant_name, 1)
        self._count_step(plan, start, end, len(prompts), sum(count for _, count in prompts))
        self._last_end = end
        return record

    def read(self, record: StepRecord, num_tokens: int) -> None:
        """The result of a step was read; it held `num_tokens` tokens for sequences that were still waiting for them."""
        end, itl = record.end, self.metrics.itl
        self.metrics.output_tokens += num_tokens
        for stream, last_token in record.fresh:
            if stream.ended:
                continue
            num_tokens -= 1
            live = stream.request
            if last_token is not None:
                itl.add(end - last_token)
            elif live.first_token is None:
                live.first_token = end
                live.tenant.ttft.add(end - live.arrival)
        if num_tokens:
            itl.add(record.gap, num_tokens)

    def finish(self) -> Metrics:
        """The metrics, when nothing is left to happen."""
        self._sample_waste()
        metrics, roster, prefix = self.metrics, self._scheduler.stats, self._scheduler.kv.stats
        metrics.preempted_recompute = roster.preempted_recompute
        metrics.preempted_swap = roster.preempted_swap
        metrics.paused = roster.paused
        metrics.prefix_queries, metrics.prefix_hits = prefix.queries, prefix.hits
        metrics.prefix_tokens_asked, metrics.prefix_tokens_saved = prefix.tokens_asked, prefix.tokens_saved
        metrics.prefix_evictions = prefix.evictions
        return metrics

    # -- inside ------------------------------------------------------------------------------------------------

    def _fresh_rows(self, plan: StepPlan) -> list[int]:
        """Rows that sample now and were not sampling in the step before."""
        rows, awaiting, fresh = plan.rows, self._awaiting, []
        position = plan.num_sampling - 1
        # ends of prompts come after the decodes
        while position >= 0 and rows[position] in awaiting:
            fresh.append(rows[position])
            position -= 1
        if len(awaiting) > len(fresh) + len(rows) - plan.num_sampling:
            # a row that was granted nothing when it came may be anywhere among the decodes
            decodes = set(rows[: position + 1])
            fresh.extend(row for row in awaiting if row in decodes)
        return fresh

    def _prompt_counts(self, plan: StepPlan, num_fresh: int) -> list[tuple[str, int]]:
        """Tokens of prompts in a step, with their tenants."""
        first = plan.num_sampling - num_fresh
        return [
            (self._by_row[row].request.tenant_name, count)
            for row, count in zip(plan.rows[first:], plan.counts[first:], strict=True)
        ]

    def _count_step(self, plan: StepPlan, start: float, end: float, prompts: int, prompt_tokens: int) -> None:
        metrics, pool, seconds = self.metrics, self._scheduler.kv.device.pool, end - start
        running, used = len(plan.rows), pool.num_used / pool.num_blocks
        waiting = self._scheduler.num_waiting
        metrics.steps += 1
        metrics.computed_tokens += prompt_tokens
        metrics.step_tokens += running - prompts + prompt_tokens
        metrics.busy += seconds
        metrics.running += running * seconds
        metrics.waiting += waiting * seconds
        metrics.most_running = max(metrics.most_running, running)
        metrics.kv.used += used * seconds
        metrics.kv.peak = max(metrics.kv.peak, used)
        step = Bin(plan.num_sampling, prompt_tokens, running * seconds, waiting * seconds, used * seconds, seconds)
        metrics.timeline.add(start, end, step)
        if metrics.steps >= self._next_sample:
            self._sample_waste()

    def _sample_waste(self) -> None:
        """Measure the KV cache; between two measurements it is taken to change evenly."""
        kv, metrics = self._scheduler.kv, self.metrics
        self._next_sample = metrics.steps + max(1, metrics.steps // SAMPLE_SHARE)
        half, self._sampled_busy = (metrics.busy - self._sampled_busy) / 2, metrics.busy
        before, self._usage = self._usage, kv.usage()
        for usage in (before, self._usage):
            metrics.kv.allocated_slots += usage.allocated_slots * half
            metrics.kv.wasted_slots += usage.wasted_slots * half
            metrics.kv.held_blocks += usage.allocated_slots / kv.block_size * half
            metrics.kv.unshared_blocks += usage.unshared_blocks * half
