"""Everything counted about one replica while it runs. Plain numbers: they travel between processes and add up."""

from typing import Self

import msgspec

from quire.simulation.histogram import Histogram
from quire.simulation.reservation import Reservations
from quire.simulation.timeline import Timeline


class KVMetrics(msgspec.Struct):
    """Levels of the KV cache times the seconds they lasted, over the time the device was busy."""

    used: float = 0.0
    """Share of the blocks that sequences hold."""
    peak: float = 0.0
    allocated_slots: float = 0.0
    wasted_slots: float = 0.0
    held_blocks: float = 0.0
    unshared_blocks: float = 0.0
    """Blocks the same sequences would hold if they shared none."""

    def merge(self, other: Self) -> None:
        self.used += other.used
        self.peak = max(self.peak, other.peak)
        self.allocated_slots += other.allocated_slots
        self.wasted_slots += other.wasted_slots
        self.held_blocks += other.held_blocks
        self.unshared_blocks += other.unshared_blocks


class TenantMetrics(msgspec.Struct):
    """What one tenant got."""

    arrived: int = 0
    ended: int = 0
    refused: int = 0
    output_tokens: int = 0
    ttft: Histogram = msgspec.field(default_factory=Histogram)
    queue: Histogram = msgspec.field(default_factory=Histogram)
    total: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from arrival to the end of the request."""
    tpot: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds a token after an answer's first, on average over the answer."""
    contended_service: float = 0.0
    """Tokens computed and sampled for it while it and another tenant had requests waiting."""
    contended_time: float = 0.0

    def merge(self, other: Self) -> None:
        self.arrived += other.arrived
        self.ended += other.ended
        self.refused += other.refused
        self.output_tokens += other.output_tokens
        self.ttft.merge(other.ttft)
        self.queue.merge(other.queue)
        self.total.merge(other.total)
        self.tpot.merge(other.tpot)
        self.contended_service += other.contended_service
        self.contended_time += other.contended_time


COUNTS = (
    *("steps", "step_tokens", "input_tokens", "output_tokens", "computed_tokens", "dropped_beams", "good"),
    *("busy", "running", "waiting", "preempted_recompute", "preempted_swap", "paused"),
    *("prefix_queries", "prefix_hits", "prefix_tokens_asked", "prefix_tokens_saved", "prefix_evictions"),
)
"""Fields of `Metrics` that simply add up."""


class Metrics(msgspec.Struct):
    """All of it, for one replica or for several added up."""

    replicas: int = 1
    end: float = 0.0
    """When the last request ended, in seconds from the start."""
    steps: int = 0
    step_tokens: int = 0
    input_tokens: int = 0
    """Of requests that ended."""
    output_tokens: int = 0
    computed_tokens: int = 0
    """Prompt tokens that were computed: those of the prefix cache were not, those of preempted sequences were again."""
    dropped_beams: int = 0
    good: int = 0
    """Requests that met the latency goals, where there are any."""
    busy: float = 0.0
    """Seconds of steps."""
    running: float = 0.0
    """Sequences in steps, times their seconds."""
    waiting: float = 0.0
    most_running: int = 0
    reasons: dict[str, int] = {}
    """Sequences by why they ended; dropped beams are not among them."""
    preempted_recompute: int = 0
    preempted_swap: int = 0
    paused: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prefix_tokens_asked: int = 0
    prefix_tokens_saved: int = 0
    prefix_evictions: int = 0
    itl: Histogram = msgspec.field(default_factory=Histogram)
    kv: KVMetrics = msgspec.field(default_factory=KVMetrics)
    reservations: Reservations = msgspec.field(default_factory=Reservations)
    tenants: dict[str, TenantMetrics] = {}
    timeline: Timeline = msgspec.field(default_factory=Timeline)

    def tenant(self, name: str) -> TenantMetrics:
        """The numbers of one tenant."""
        found = self.tenants.get(name)
        if found is None:
            found = self.tenants[name] = TenantMetrics()
        return found

    def merge(self, other: Self) -> None:
        """Take in another replica's numbers."""
        self.replicas += other.replicas
        self.end = max(self.end, other.end)
        self.most_running = max(self.most_running, other.most_running)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        for tenant, metrics in other.tenants.items():
            self.tenant(tenant).merge(metrics)
        self.itl.merge(other.itl)
        self.kv.merge(other.kv)
        self.reservations.merge(other.reservations)
        self.timeline.merge(other.timeline)


def total_of(parts: list[Metrics]) -> Metrics:
    """Several replicas as one."""
    total = Metrics(replicas=0)
    for part in parts:
        total.merge(part)
    return total
