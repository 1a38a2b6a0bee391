"""What an engine and a request tell about themselves, as plain numbers; observers turn them into metrics and traces."""

import msgspec

from quire.core.status import FinishReason


class LayerBalance(msgspec.Struct, frozen=True, array_like=True):
    """How evenly tokens choose among the experts of a layer."""

    layer: int
    imbalance: float
    """The busiest expert's tokens, in those of an average expert: 1 is even."""
    hot_share: float
    """What part of all choices the hottest tenth of its experts has."""


class RankBalance(msgspec.Struct, frozen=True, array_like=True):
    """How evenly the choices of tokens lay on ranks with whole experts, over all layers and the steps between two looks
    at the load."""

    imbalance: float
    """The busiest rank's, in those of an average one: 1 is even. Of every layer its own rank is the busiest."""
    without_copies: float
    """What it would have been if no expert had a copy."""
    copies_moved: int
    """Copies that have come to ranks since the start."""


class EngineStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An engine after a step. Counts named `total_` only grow while the engine lives."""

    step: int = 0
    running: int = 0
    waiting: int = 0
    held: int = 0
    """Sequences that wait for a slow reader."""
    step_seconds: float = 0.0
    step_tokens: int = 0
    """Tokens computed in the step, prompts and answers together."""
    step_sequences: int = 0
    num_blocks: int = 0
    used_blocks: int = 0
    cached_blocks: int = 0
    """Blocks that are free to take and still hold a prefix someone may want again."""
    block_size: int = 0
    kv_waste: float = 0.0
    """Share of the slots of used blocks that hold no token."""
    host_blocks: int = 0
    used_host_blocks: int = 0
    total_prefix_tokens: int = 0
    """Prompt tokens looked up in the prefix cache."""
    total_prefix_hits: int = 0
    """Of those, tokens that were found."""
    total_media_encoded: int = 0
    """Images and videos that the model's encoder read."""
    total_media_found: int = 0
    """Those of prompts that were not read again, since what the encoder made of them was kept."""
    total_encoder_seconds: float = 0.0
    total_preemptions_recompute: int = 0
    total_preemptions_swap: int = 0
    total_steps_failed: int = 0
    total_out_of_memory: int = 0
    """Of those, steps for which the device had not enough memory."""
    disk_blocks: int = 0
    """Of prefixes on disk, at most."""
    used_disk_blocks: int = 0
    disk_block_bytes: int = 0
    total_evictions: int = 0
    """Blocks of prefixes that made room on the device."""
    total_host_evictions: int = 0
    total_disk_evictions: int = 0
    total_disk_hits: int = 0
    """Prompt tokens that were read from disk instead of computed."""
    total_disk_reads: int = 0
    """Blocks."""
    total_disk_writes: int = 0
    total_disk_corrupt: int = 0
    """Blocks whose bytes on disk were not those that were written."""
    foreign_disk_files: int = 0
    """Files in the engine's folder that it cannot use."""
    sleep_level: int = 0
    """0 while it is awake."""
    total_wakes: int = 0
    wake_seconds: float = 0.0
    """That the last waking took."""
    adapters: int = 0
    """LoRA adapters on the device."""
    host_adapters: int = 0
    waiting_adapters: int = 0
    """Those that requests wait for because the device has no room."""
    total_adapter_hits: int = 0
    """Requests whose adapter was on the device."""
    total_adapter_loads: int = 0
    total_adapter_evictions: int = 0
    fetching: int = 0
    """Requests whose KV is on its way from other engines."""
    total_kv_sent_blocks: int = 0
    total_kv_sent_bytes: int = 0
    total_kv_sent_seconds: float = 0.0
    """Spent reading and sending, over all connections."""
    total_kv_received_blocks: int = 0
    total_kv_received_bytes: int = 0
    total_kv_received_seconds: float = 0.0
    """Spent receiving, checking and writing, over all connections."""
    total_kv_refused: int = 0
    """Connections that were refused, here or there: another format, another secret, nobody there."""
    total_kv_corrupt: int = 0
    """Blocks whose checksum was wrong."""
    total_kv_declined: int = 0
    """Transfers that were not begun because computing was expected to be faster."""
    total_kv_given_up: int = 0
    """Requests that went on without all of the KV they had waited for."""
    draft_method: str = ""
    """How tokens are drafted, where they are."""
    total_drafts: int = 0
    """Times a sequence had drafts verified."""
    total_draft_tokens: int = 0
    total_accepted_tokens: int = 0
    """Of those drafts, the ones that were right."""
    expert_balance: list[LayerBalance] = []
    """By layer with experts, over the last seconds; told where it is another than the last that was told."""
    rank_balance: RankBalance | None = None
    """Where experts have copies on several ranks; None: nobody has looked yet."""
    total_expert_copies: int = 0
    """Copies of experts that came to ranks to follow the load."""
    total_expert_choices: int = 0
    """Pairs of a token and an expert that it chose, over all layers."""
    total_expert_hits: int = 0
    """Experts that steps asked for and that were on the device, where some stay in host memory."""
    total_expert_misses: int = 0
    total_expert_evictions: int = 0
    """Experts that made way for others."""
    memory_bytes: int = 0
    """Resident memory of the engine's process."""
    device_memory_bytes: int = 0
    """Memory in use on the device; 0 where the device is the CPU."""
    device_memory_total: int = 0


class FinishedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request from beginning to end. Times are in seconds on the monotonic clock."""

    id: str
    endpoint: str = ""
    """The route it came by, such as /v1/chat/completions."""
    tenant: str = ""
    model: str = ""
    replica: int = 0
    reason: FinishReason = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    n: int = 1
    max_tokens: int | None = None
    arrival: float = 0.0
    first_scheduled: float | None = None
    first_token: float | None = None
    finished: float = 0.0
    moves: int = 0
    """Engines that were lost with it."""
    traceparent: str | None = None
    """The W3C header it came with, which names the trace it belongs to."""
