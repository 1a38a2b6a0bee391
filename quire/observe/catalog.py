"""Every metric quire exports, as data: its name, kind, help, labels and buckets. Knows no metrics library.

Where vLLM measures the same thing, a name after `quire_` is its name after `vllm:`, so that dashboards port.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]
OTHER = "other"
"""The value of a label that stands for all that have none of their own: no client grows /metrics."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Every sample also carries `model_name`."""

    name: str
    """As queries write it: counters with their `_total`, histograms without `_bucket`."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    limit: int | None = None
    """How many values of the last label are told apart, where the catalog cannot list them; the rest are `other`."""


_ENGINE = ("engine",)
_WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_GAPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 20, 40, 80)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)
_DOUBLING = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"quire_{name}", "gauge", text, labels)


def _counter(name: str, text: str, *labels: str, limit: int | None = None) -> Metric:
    return Metric(f"quire_{name}_total", "counter", text, labels, limit=limit)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"quire_{name}", "histogram", text, labels, buckets)


# --- engines ---------------------------------------------------------------------------------------------------------
RUNNING = _gauge("num_requests_running", "Sequences that have a row on the device.", *_ENGINE)
WAITING = _gauge("num_requests_waiting", "Sequences that wait for their turn.", *_ENGINE)
HELD = _gauge("num_requests_held", "Sequences that wait for a slow reader.", *_ENGINE)
KV_USAGE = _gauge("kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all of them.", *_ENGINE)
KV_BLOCKS = _gauge("kv_blocks", "KV blocks by state; cached ones are free and hold a prefix.", "engine", "state")
KV_WASTE = _gauge("kv_cache_waste_perc", "Share of the slots of used KV blocks that hold no token.", *_ENGINE)
HOST_USAGE = _gauge("cpu_cache_usage_perc", "Share of the KV blocks of the CPU tier in use.", *_ENGINE)
HOST_BLOCKS = _gauge("cpu_kv_blocks", "KV blocks of the CPU tier by state.", "engine", "state")
DISK_BLOCKS = _gauge("disk_kv_blocks", "KV blocks of prefixes on disk by state.", "engine", "state")
DISK_BYTES = _gauge("disk_kv_bytes", "Bytes of prefixes on disk.", *_ENGINE)
DISK_FOREIGN = _gauge("disk_kv_foreign_files", "Files in the folder of prefixes that are not used.", *_ENGINE)
DISK_HITS = _counter("disk_prefix_hits", "Prompt tokens read from disk instead of computed.", *_ENGINE)
DISK_READS = _counter("disk_kv_reads", "KV blocks read from disk.", *_ENGINE)
DISK_WRITES = _counter("disk_kv_writes", "KV blocks written to disk.", *_ENGINE)
DISK_CORRUPT = _counter("disk_kv_corrupt", "KV blocks on disk that failed their checksum.", *_ENGINE)
EVICTIONS = _counter("kv_evictions", "KV blocks of prefixes that made room, by tier.", "engine", "tier")
CACHE_CONFIG = _gauge("cache_config_info", "Always 1; the labels say how the KV cache is cut.", "engine", "block_size",
                      "num_gpu_blocks", "num_cpu_blocks")  # fmt: skip
DEVICE_MEMORY = _gauge("device_memory_bytes", "Memory in use on the device; 0 where that is the CPU.", *_ENGINE)
DEVICE_MEMORY_TOTAL = _gauge("device_memory_total_bytes", "Memory the device has.", *_ENGINE)
ENGINE_UP = _gauge("engine_up", "1 while the engine reports steps, 0 from its loss to its replacement.", *_ENGINE)
ENGINE_GIVEN_UP = _gauge("engine_given_up", "1 while the engine was lost too often in a row to count on it.", *_ENGINE)
ENGINE_MEMORY = _gauge("engine_memory_bytes", "Resident memory of the engine's process.", *_ENGINE)
ASLEEP = _gauge("engine_sleep_level", "0 awake; 1 weights in host memory; 2 weights dropped.", *_ENGINE)
WAKES = _counter("engine_wakes", "Times the engine woke up.", *_ENGINE)
WAKE_SECONDS = _gauge("engine_wake_seconds", "Seconds that the last waking took.", *_ENGINE)
ADAPTERS = _gauge("lora_adapters", "LoRA adapters, by where they are.", "engine", "place")
ADAPTERS_WAITING = _gauge("lora_adapters_waiting", "LoRA adapters that wait for room on the device.", *_ENGINE)
ADAPTER_HITS = _counter("lora_adapter_hits", "Requests whose LoRA adapter was on the device.", *_ENGINE)
ADAPTER_LOADS = _counter("lora_adapter_loads", "LoRA adapters that were copied to the device.", *_ENGINE)
ADAPTER_EVICTIONS = _counter("lora_adapter_evictions", "LoRA adapters that made way for others.", *_ENGINE)
EXPERT_IMBALANCE = _gauge("expert_load_imbalance", "Tokens of a layer's busiest expert in those of an average one, "
                          "over the last seconds; 1 is even.", "engine", "layer")  # fmt: skip
EXPERT_HOT_SHARE = _gauge("expert_hot_share", "Share of a layer's choices that the hottest tenth of its experts has, "
                          "over the last seconds.", "engine", "layer")  # fmt: skip
EXPERT_RANK_IMBALANCE = _gauge("expert_rank_imbalance", "Choices of the busiest rank in those of an average one, over "
                               "all layers and the steps between two looks at the load: with copies of experts as they "
                               "were, and as it would have been without; 1 is even.", "engine", "copies")  # fmt: skip
EXPERT_COPIES = _counter("expert_copies_moved", "Copies of experts that came to ranks to follow the load.", *_ENGINE)
EXPERT_HITS = _counter("expert_cache_hits", "Experts that steps asked for and that were on the device, where some stay "
                       "in host memory.", *_ENGINE)  # fmt: skip
EXPERT_MISSES = _counter(
    "expert_cache_misses", "Experts that steps asked for and that came from host memory.", *_ENGINE
)
EXPERT_EVICTIONS = _counter("expert_cache_evictions", "Experts that made way for others on the device.", *_ENGINE)
EXPERT_CHOICES = _counter("expert_choices", "Pairs of a token and an expert that it chose, over all layers.", *_ENGINE)
KV_FETCHING = _gauge("kv_transfers_waiting", "Requests whose KV is on its way from other engines.", *_ENGINE)
KV_MOVED_BLOCKS = _counter("kv_transfer_blocks", "KV blocks sent to and received from other engines.", "engine",
                           "direction")  # fmt: skip
KV_MOVED_BYTES = _counter("kv_transfer_bytes", "Bytes of those.", "engine", "direction")
KV_MOVED_SECONDS = _counter("kv_transfer_seconds", "Seconds that connections were busy with those.", "engine",
                            "direction")  # fmt: skip
KV_NOT_MOVED = _counter("kv_transfers_failed", "KV that did not come: refused connections, blocks with wrong checksums,"
                        " transfers that computing was faster than, requests that went on without.", "engine",
                        "reason")  # fmt: skip
PREFIX_QUERIES = _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", *_ENGINE)
PREFIX_HITS = _counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", *_ENGINE)
MEDIA_ENCODED = _counter("media_encoded", "Images and videos that the model's encoder read.", *_ENGINE)
MEDIA_FOUND = _counter("encoder_cache_hits", "Images and videos of prompts whose embeddings were kept.", *_ENGINE)
ENCODER_SECONDS = _counter("encoder_seconds", "Seconds that the model's encoder was busy with media.", *_ENGINE)
PREEMPTIONS = _counter("num_preemptions", "Sequences that lost their blocks to others.", "engine", "mode")
STEPS = _counter("engine_steps", "Steps the engine took.", *_ENGINE)
STEPS_FAILED = _counter("engine_steps_failed", "Steps that threw and were blamed on their requests.", *_ENGINE)
OUT_OF_MEMORY = _counter("engine_out_of_memory", "Steps that ran out of device memory and were rolled back.", *_ENGINE)
BUSY_SECONDS = _counter("engine_busy_seconds", "Seconds inside steps; its rate is how busy the engine is.", *_ENGINE)
LOST = _counter("engine_restarts", "Engines that died or stalled and were replaced.", "engine", "reason", limit=16)
DRAFTS = _counter("spec_decode_num_drafts", "Times a sequence had drafted tokens verified.", "engine", "method")
DRAFT_TOKENS = _counter("spec_decode_num_draft_tokens", "Drafted tokens that were verified.", "engine", "method")
ACCEPTED_TOKENS = _counter("spec_decode_num_accepted_tokens", "Drafted tokens that were right; over the number of "
                           "drafts, the mean accepted length.", "engine", "method")  # fmt: skip
STEP_TOKENS = _histogram("iteration_tokens", "Tokens computed in a step, prompts and answers together.",
                         (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384), *_ENGINE)  # fmt: skip
BATCH_SIZE = _histogram("batch_size", "Sequences computed in a step.", _DOUBLING, *_ENGINE)
STEP_SECONDS = _histogram("step_seconds", "Seconds a step took.", _GAPS, *_ENGINE)

# --- requests --------------------------------------------------------------------------------------------------------
PROMPT_TOKENS = _counter("prompt_tokens", "Prompt tokens of requests whose prompt has been computed.", *_ENGINE)
PROMPT_CACHED = _counter("prompt_tokens_cached", "Prompt tokens of finished requests that came from a cache.", *_ENGINE)
OUTPUT_TOKENS = _counter("generation_tokens", "Tokens generated.", *_ENGINE)
FINISHED = _counter("request_success", "Requests that ended, by how.", "engine", "finished_reason")
MOVED = _counter("requests_moved", "Times a request went on in another engine because its own was lost.", *_ENGINE)
TTFT = _histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", _FIRST, *_ENGINE)
ITL = _histogram("inter_token_latency_seconds", "Between one token of a sequence and the next.", _GAPS, *_ENGINE)
TPOT = _histogram("request_time_per_output_token_seconds", "A request's mean time a token, after its first.", _GAPS,
                  *_ENGINE)  # fmt: skip
E2E = _histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", _WAITS, *_ENGINE)
QUEUE = _histogram("request_queue_time_seconds", "From a request's arrival to its first step.", _WAITS, *_ENGINE)
PREFILL = _histogram("request_prefill_time_seconds", "From first step to first token of a request.", _WAITS, *_ENGINE)
DECODE = _histogram("request_decode_time_seconds", "From a request's first token to its end.", _WAITS, *_ENGINE)
INFERENCE = _histogram("request_inference_time_seconds", "From a request's first step to its end.", _WAITS, *_ENGINE)
REQUEST_PROMPT = _histogram("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS, *_ENGINE)
REQUEST_OUTPUT = _histogram("request_generation_tokens", "Tokens generated for a request.", _TOKENS, *_ENGINE)
PARAMS_N = _histogram("request_params_n", "Answers a request asked for.", (1, 2, 5, 10, 20), *_ENGINE)
PARAMS_MAX_TOKENS = _histogram("request_params_max_tokens", "max_tokens, where a request set it.", _TOKENS, *_ENGINE)

# --- HTTP and the front ----------------------------------------------------------------------------------------------
HTTP_REQUESTS = _counter("http_requests", "HTTP requests answered.", "handler", "method", "status")
HTTP_SECONDS = _histogram("http_request_duration_seconds", "From an HTTP request to the last byte of its answer.",
                          _WAITS, "handler", "method")  # fmt: skip
REFUSED = _counter("requests_refused", "Requests refused before any work, by reason.", "reason", limit=32)
IGNORED = _counter("ignored_fields", "Fields of requests that change no answer, by name; the header x-quire-ignored "
                   "names them too.", "field", limit=128)  # fmt: skip
CONNECTIONS = _gauge("http_connections", "Open client connections.")
READERS_PAUSED = _counter("slow_readers_paused", "Times a sequence was held because its client reads too slowly.")
READERS_DROPPED = _counter("slow_readers_dropped", "Clients dropped because they stopped reading.")
FRONT_MEMORY = _gauge("front_memory_bytes", "Resident memory of the front's process, or of all fronts together.")
FRONTS = _gauge("fronts", "Front processes that serve, where there may be several.")
FRONTS_LOST = _counter("fronts_lost", "Front processes that died and were replaced.")

MEMBERS = _gauge("router_members", "Instances that the router knows, by state.", "state")
MEMBER_LOAD = _gauge("router_member_tokens", "Tokens of the requests that an instance has from this router.", "member")
MEMBER_RUNNING = _gauge("router_member_requests", "Requests that an instance has from this router.", "member")
RELAYED = _counter("router_relayed", "Requests that an instance began to answer.", "member", limit=1024)
RETRIED = _counter("router_retried", "Requests asked of another instance before anything was sent.", "member",
                   limit=1024)  # fmt: skip
RESUMED = _counter("router_resumed", "Answers that went on at another instance after this one was lost.", "member",
                   limit=1024)  # fmt: skip
MEMBER_SECONDS = _histogram("router_first_byte_seconds", "From a request to the headers of an instance's answer.",
                            _WAITS)  # fmt: skip

ENGINE_METRICS = (
    *(RUNNING, WAITING, HELD, KV_USAGE, KV_BLOCKS, KV_WASTE, HOST_USAGE, HOST_BLOCKS, CACHE_CONFIG, DEVICE_MEMORY),
    *(DEVICE_MEMORY_TOTAL, ENGINE_UP, ENGINE_GIVEN_UP, ENGINE_MEMORY, PREFIX_QUERIES, PREFIX_HITS, PREEMPTIONS, STEPS),
    *(MEDIA_ENCODED, MEDIA_FOUND, ENCODER_SECONDS),
    *(STEPS_FAILED, OUT_OF_MEMORY, BUSY_SECONDS, LOST, DRAFTS, DRAFT_TOKENS, ACCEPTED_TOKENS),
    *(KV_FETCHING, KV_MOVED_BLOCKS, KV_MOVED_BYTES, KV_MOVED_SECONDS, KV_NOT_MOVED),
    *(ADAPTERS, ADAPTERS_WAITING, ADAPTER_HITS, ADAPTER_LOADS, ADAPTER_EVICTIONS),
    *(EXPERT_IMBALANCE, EXPERT_HOT_SHARE, EXPERT_CHOICES, EXPERT_RANK_IMBALANCE, EXPERT_COPIES),
    *(EXPERT_HITS, EXPERT_MISSES, EXPERT_EVICTIONS),
    *(DISK_BLOCKS, DISK_BYTES, DISK_FOREIGN, DISK_HITS, DISK_READS, DISK_WRITES, DISK_CORRUPT, EVICTIONS),
    *(ASLEEP, WAKES, WAKE_SECONDS),
    *(STEP_TOKENS, BATCH_SIZE, STEP_SECONDS),
)
REQUEST_METRICS = (
    *(PROMPT_TOKENS, PROMPT_CACHED, OUTPUT_TOKENS, FINISHED, MOVED, TTFT, ITL, TPOT, E2E, QUEUE, PREFILL, DECODE),
    *(INFERENCE, REQUEST_PROMPT, REQUEST_OUTPUT, PARAMS_N, PARAMS_MAX_TOKENS),
)
FRONT_METRICS = (
    *(HTTP_REQUESTS, HTTP_SECONDS, REFUSED, IGNORED, CONNECTIONS, READERS_PAUSED, READERS_DROPPED, FRONT_MEMORY),
)
HUB_METRICS = (FRONTS, FRONTS_LOST)
ALL_METRICS = ENGINE_METRICS + REQUEST_METRICS + FRONT_METRICS + HUB_METRICS
ROUTER_METRICS = (MEMBERS, MEMBER_LOAD, MEMBER_RUNNING, RELAYED, RETRIED, RESUMED, MEMBER_SECONDS)
"""Of `quire route`, beside those of any front."""
BY_NAME = {metric.name: metric for metric in ALL_METRICS + ROUTER_METRICS}
