"""Report: what a simulation found, as one frozen object that JSON and tables are made from. Times are in seconds."""

import msgspec

from quire.simulation.histogram import Percentiles


class Setting(msgspec.Struct, frozen=True):
    """What was simulated."""

    model: str
    device: str
    num_devices: int
    """Of each replica."""
    replicas: int
    policy: str
    routing: str
    preemption: str
    async_steps: bool
    block_size: int
    num_blocks: int
    """Of each replica, or of each of its attention ranks."""
    num_cpu_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    prefix_caching: bool
    target_itl_ms: float | None
    workload: str
    seed: int | None
    attention_ranks: int = 1
    """Of each replica: ranks that attend each to sequences of their own."""


class RequestCounts(msgspec.Struct, frozen=True):
    """Where the requests went. Every one that arrives is refused or ends, once."""

    arrived: int
    refused: int
    ended: int
    reasons: dict[str, int]
    """Sequences by why they ended."""


class Throughput(msgspec.Struct, frozen=True):
    """Work over the time from the first arrival to the last end."""

    seconds: float
    requests_per_second: float
    input_tokens: int
    output_tokens: int
    output_tokens_per_second: float
    total_tokens_per_second: float
    busy: float
    """Share of that time in which a replica's device was running a step."""


class Steps(msgspec.Struct, frozen=True):
    """How full the steps were."""

    count: int
    mean_seconds: float
    mean_running: float
    """Sequences in a step, on average over the busy time."""
    most_running: int
    mean_waiting: float
    mean_tokens: float


class KVReport(msgspec.Struct, frozen=True):
    """The KV cache, on average over the busy time."""

    mean_used: float
    peak_used: float
    waste: float
    """(allocated − used) over allocated slots."""
    contiguous_waste: dict[str, float]
    """The same for sequences that each reserve one piece: the whole context, the answer as a power of two, exactly."""
    mean_blocks: float
    """Blocks that sequences held, in all replicas."""
    mean_blocks_unshared: float
    """Blocks the same sequences would have held if they shared none."""
    sharing_saved: float
    """The part of those that sharing saved."""


class PrefixReport(msgspec.Struct, frozen=True):
    """What the prefix cache was good for."""

    queries: int
    hits: int
    hit_rate: float
    """Share of prompt tokens that did not have to be computed."""
    tokens_saved: int
    evictions: int


class Preemptions(msgspec.Struct, frozen=True):
    """How often sequences had to make way."""

    recompute: int
    swap: int
    paused: int
    """Lost the row but kept the blocks."""


class TenantReport(msgspec.Struct, frozen=True):
    """What one tenant got."""

    arrived: int
    ended: int
    refused: int
    output_tokens: int
    weight: float
    ttft: Percentiles
    queue: Percentiles
    total: Percentiles
    contended_rate: float | None
    """Tokens a second that it was served while it and others had requests waiting; None if that never happened."""


class Fairness(msgspec.Struct, frozen=True):
    """How evenly tenants were served."""

    jain: float | None
    """Jain's index of the tenants' contended rates over their weights; None when no two ever competed."""
    longest_wait: float
    """The longest that any request waited for its first row."""


class TimePoint(msgspec.Struct, frozen=True):
    """A moment of the whole cluster."""

    time: float
    output_tokens_per_second: float
    input_tokens_per_second: float
    running: float
    waiting: float
    kv_used: float


class Curve(msgspec.Struct, frozen=True):
    """A cumulative distribution: `shares[i]` of all values are at most `values[i]`."""

    values: list[float]
    shares: list[float]


class Report(msgspec.Struct, frozen=True):
    """One simulated cluster."""

    setting: Setting
    requests: RequestCounts
    throughput: Throughput
    ttft: Percentiles
    itl: Percentiles
    queue: Percentiles
    total: Percentiles
    """From arrival to the end."""
    steps: Steps
    kv: KVReport
    prefix: PrefixReport
    preemptions: Preemptions
    dropped_beams: int
    tenants: dict[str, TenantReport]
    fairness: Fairness
    timeline: list[TimePoint]
    ttft_curve: Curve
    itl_curve: Curve
