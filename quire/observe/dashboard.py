"""The Grafana dashboard, made from the catalog of metrics: a query cannot name a metric that does not exist."""

import json
from collections.abc import Iterable
from typing import Any

from quire.observe import catalog
from quire.observe.catalog import Metric
from quire.observe.grafana import Panel, Query, Row, dashboard

_VARIABLES = (
    ("model_name", "Model", f"label_values({catalog.ENGINE_UP.name}, model_name)"),
    ("engine", "Engine", f'label_values({catalog.ENGINE_UP.name}{{model_name=~"$model_name"}}, engine)'),
)
"""What one chooses above the charts: a name in queries, one for people, and where its values come from."""


def dashboard_json() -> str:
    """The file that Grafana imports."""
    return json.dumps(dashboard(_rows(), _VARIABLES), indent=1, ensure_ascii=False) + "\n"


def expressions(dashboard: dict[str, Any]) -> list[str]:
    """Every query of a dashboard, those of its variables included."""
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    variables = [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    return targets + variables


# --- queries ---------------------------------------------------------------------------------------------------------


def _selected(metric: Metric, suffix: str = "", only: str = "") -> str:
    wanted = [] if metric in catalog.ROUTER_METRICS else ['model_name=~"$model_name"']  # a router is for many models
    if "engine" in metric.labels:
        wanted.append('engine=~"$engine"')
    chosen = ",".join([*wanted, *([only] if only else [])])
    return f"{metric.name}{suffix}{{{chosen}}}" if chosen else f"{metric.name}{suffix}"


def _now(metric: Metric, *by: str, legend: str = "") -> Query:
    total = "avg" if metric.name.endswith("_perc") else "sum"
    return Query(f"{_over(total, by)}({_selected(metric)})", legend or _legend(metric, by))


def _largest(metric: Metric, *by: str) -> Query:
    return Query(f"{_over('max', by)}({_selected(metric)})", f"layer {_legend(metric, by)}")


def _rate(metric: Metric, *by: str, legend: str = "") -> Query:
    return Query(f"{_over('sum', by)}(rate({_selected(metric)}[$__rate_interval]))", legend or _legend(metric, by))


def _over(total: str, by: tuple[str, ...]) -> str:
    return f"{total} by ({', '.join(by)}) " if by else total


def _share(part: Metric, whole: Metric, legend: str) -> Query:
    top, bottom = (f"sum(rate({_selected(metric)}[$__rate_interval]))" for metric in (part, whole))
    return Query(f"{top} / {bottom}", legend)


def _quantiles(metric: Metric) -> tuple[Query, ...]:
    buckets = f"sum by (le) (rate({_selected(metric, '_bucket')}[$__rate_interval]))"
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    found = [Query(f"histogram_quantile({share}, {buckets})", name) for name, share in shares.items()]
    return (*found, _mean(metric, "mean"))


def _mean(metric: Metric, legend: str) -> Query:
    parts = (f"sum(rate({_selected(metric, suffix)}[$__rate_interval]))" for suffix in ("_sum", "_count"))
    return Query(" / ".join(parts), legend)


def _legend(metric: Metric, by: Iterable[str]) -> str:
    values = [f"engine {{{{{label}}}}}" if label == "engine" else f"{{{{{label}}}}}" for label in by]
    return " ".join(values) or metric.name.removeprefix("quire_").removesuffix("_total").replace("_", " ")


# --- panels ----------------------------------------------------------------------------------------------------------


def _rows() -> tuple[Row, ...]:
    of_engines = (_engine(), _memory(), _tiers(), _drafts(), _adapters(), _experts(), _transfers())
    return (_service(), _latency(), _requests(), _fleet(), *of_engines, _front())


def _service() -> Row:
    tokens = (
        _rate(catalog.OUTPUT_TOKENS, legend="generated"),
        _rate(catalog.PROMPT_TOKENS, legend="prompts"),
        _rate(catalog.PROMPT_CACHED, legend="prompts, from the cache"),
    )
    sequences = (
        _now(catalog.RUNNING, legend="running"),
        _now(catalog.WAITING, legend="waiting"),
        _now(catalog.HELD, legend="held for slow readers"),
    )
    failed = _selected(catalog.FINISHED, only='finished_reason="error"')
    broken = _selected(catalog.HTTP_REQUESTS, only='status=~"5.."')
    failures = (
        Query(f"sum(rate({failed}[$__rate_interval]))", "requests that failed"),
        Query(f"sum(rate({broken}[$__rate_interval]))", "HTTP 5xx"),
    )
    return Row(
        "Service",
        (
            Panel("Tokens a second", "short", tokens),
            Panel("Sequences", "short", sequences),
            Panel("Requests by how they ended", "reqps", (_rate(catalog.FINISHED, "finished_reason"),), stacked=True),
            Panel("Errors", "reqps", failures),
        ),
    )


def _latency() -> Row:
    titles = {
        "Time to first token": catalog.TTFT,
        "Between tokens": catalog.ITL,
        "Time per output token, by request": catalog.TPOT,
        "Whole request": catalog.E2E,
        "In the queue": catalog.QUEUE,
        "Prefill": catalog.PREFILL,
        "Decode": catalog.DECODE,
        "From first step to end": catalog.INFERENCE,
    }
    return Row("Latency", tuple(_distribution(title, metric, "s") for title, metric in titles.items()))


def _requests() -> Row:
    return Row(
        "What is asked for",
        (
            _distribution("Prompt tokens of a request", catalog.REQUEST_PROMPT, "short"),
            _distribution("Generated tokens of a request", catalog.REQUEST_OUTPUT, "short"),
            _distribution("max_tokens", catalog.PARAMS_MAX_TOKENS, "short"),
            Panel("Answers a request (n)", "short", (_mean(catalog.PARAMS_N, "mean"),)),
        ),
    )


def _fleet() -> Row:
    """Servers beside each other, by the address that Prometheus reads them at, and what routers say of them."""
    elsewhere = (
        _rate(catalog.RETRIED, legend="asked of another before anything was sent"),
        _rate(catalog.RESUMED, legend="gone on at another"),
    )
    return Row(
        "Fleet",
        (
            Panel("Engines up, by server", "short", (_now(catalog.ENGINE_UP, "instance"),), stacked=True),
            Panel("Tokens a second, by server", "short", (_rate(catalog.OUTPUT_TOKENS, "instance"),), stacked=True),
            Panel("Waiting, by server", "short", (_now(catalog.WAITING, "instance"),), stacked=True),
            Panel("KV cache in use, by server", "percentunit", (_now(catalog.KV_USAGE, "instance"),), top=1),
            Panel("Members of routers, by state", "short", (_now(catalog.MEMBERS, "instance", "state"),)),
            Panel("Requests that members have", "short", (_now(catalog.MEMBER_RUNNING, "member"),), stacked=True),
            Panel("Tokens of those", "short", (_now(catalog.MEMBER_LOAD, "member"),), stacked=True),
            Panel("Answers begun, by member", "reqps", (_rate(catalog.RELAYED, "member"),), stacked=True),
            Panel("Answers that went elsewhere", "reqps", elsewhere),
            _distribution("To the first byte of a member's answer", catalog.MEMBER_SECONDS, "s"),
        ),
    )


def _adapters() -> Row:
    moved = (
        _rate(catalog.ADAPTER_HITS, legend="requests whose adapter was there"),
        _rate(catalog.ADAPTER_LOADS, legend="loads"),
        _rate(catalog.ADAPTER_EVICTIONS, legend="evictions"),
    )
    return Row(
        "LoRA adapters",
        (
            Panel("Where they are", "short", (_now(catalog.ADAPTERS, "engine", "place"),)),
            Panel("Waiting for room", "short", (_now(catalog.ADAPTERS_WAITING, "engine"),)),
            Panel("Loads and hits a second", "short", moved),
        ),
    )


def _experts() -> Row:
    cached = (
        _rate(catalog.EXPERT_HITS, legend="found on the device"),
        _rate(catalog.EXPERT_MISSES, legend="came from host memory"),
        _rate(catalog.EXPERT_EVICTIONS, legend="made way"),
    )
    return Row(
        "Experts",
        (
            Panel("Busiest expert, in average ones", "short", (_largest(catalog.EXPERT_IMBALANCE, "layer"),)),
            Panel("Share of the hottest tenth", "percentunit", (_largest(catalog.EXPERT_HOT_SHARE, "layer"),), top=1),
            Panel("Choices a second", "short", (_rate(catalog.EXPERT_CHOICES, "engine"),)),
            Panel("Busiest rank, in average ones", "short", (_largest(catalog.EXPERT_RANK_IMBALANCE, "copies"),)),
            Panel("Copies of experts that moved, a second", "short", (_rate(catalog.EXPERT_COPIES, "engine"),)),
            Panel("Experts from host memory, a second", "short", cached),
        ),
    )


def _transfers() -> Row:
    return Row(
        "KV between engines",
        (
            Panel("Bytes a second", "Bps", (_rate(catalog.KV_MOVED_BYTES, "engine", "direction"),)),
            Panel("Blocks a second", "short", (_rate(catalog.KV_MOVED_BLOCKS, "engine", "direction"),)),
            Panel("Busy connections", "short", (_rate(catalog.KV_MOVED_SECONDS, "engine", "direction"),)),
            Panel("Requests that wait for KV", "short", (_now(catalog.KV_FETCHING, "engine"),)),
            Panel("KV that did not come, a second", "short", (_rate(catalog.KV_NOT_MOVED, "engine", "reason"),)),
        ),
    )


def _engine() -> Row:
    busy = (_rate(catalog.BUSY_SECONDS, "engine"),)
    failed = (_rate(catalog.STEPS_FAILED, legend="all"), _rate(catalog.OUT_OF_MEMORY, legend="out of memory"))
    losses = (_rate(catalog.LOST, "engine", "reason"), _rate(catalog.MOVED, legend="requests moved"))
    return Row(
        "Engines",
        (
            Panel("Busy", "percentunit", busy, "Share of the time inside steps.", top=1),
            Panel("Steps a second", "short", (_rate(catalog.STEPS, "engine"),)),
            _distribution("Seconds a step", catalog.STEP_SECONDS, "s"),
            _distribution("Tokens a step", catalog.STEP_TOKENS, "short"),
            _distribution("Sequences a step", catalog.BATCH_SIZE, "short"),
            Panel("Preemptions", "short", (_rate(catalog.PREEMPTIONS, "engine", "mode"),)),
            Panel("Failed steps", "short", failed),
            Panel("Engines lost and requests moved", "short", losses),
            Panel(
                "Engines up",
                "short",
                (_now(catalog.ENGINE_UP, legend="engines"), _now(catalog.ENGINE_GIVEN_UP, legend="given up")),
            ),
        ),
    )


def _memory() -> Row:
    hits = _share(catalog.PREFIX_HITS, catalog.PREFIX_QUERIES, "tokens found")
    media = (_rate(catalog.MEDIA_ENCODED, legend="encoded"), _rate(catalog.MEDIA_FOUND, legend="kept from before"))
    device = (_now(catalog.DEVICE_MEMORY, "engine"), _now(catalog.DEVICE_MEMORY_TOTAL, legend="all there is"))
    processes = (_now(catalog.ENGINE_MEMORY, "engine"), _now(catalog.FRONT_MEMORY, legend="fronts"))
    waking = (_rate(catalog.WAKES, legend="a second"), _now(catalog.WAKE_SECONDS, legend="seconds of the last"))
    return Row(
        "Memory",
        (
            Panel("KV cache in use", "percentunit", (_now(catalog.KV_USAGE, "engine"),), top=1),
            Panel("KV blocks", "short", (_now(catalog.KV_BLOCKS, "state"),), stacked=True),
            Panel("KV slots wasted", "percentunit", (_now(catalog.KV_WASTE, "engine"),), catalog.KV_WASTE.help),
            Panel("Prefix cache hits", "percentunit", (hits,), top=1),
            Panel("Images and videos, a second", "short", media),
            Panel("Encoder busy", "percentunit", (_rate(catalog.ENCODER_SECONDS, "engine"),)),
            Panel("Sleep level", "short", (_now(catalog.ASLEEP, "engine"),), catalog.ASLEEP.help),
            Panel("Waking up", "short", waking),
            Panel("Device memory", "bytes", device),
            Panel("Memory of processes", "bytes", processes),
        ),
    )


def _tiers() -> Row:
    disk = (
        *(_rate(catalog.DISK_READS, legend="read"), _rate(catalog.DISK_WRITES, legend="written")),
        *(_rate(catalog.DISK_CORRUPT, legend="corrupt"), _now(catalog.DISK_FOREIGN, legend="foreign files")),
    )
    found = (
        _rate(catalog.PREFIX_HITS, legend="in the cache of a device"),
        _rate(catalog.DISK_HITS, legend="read from disk"),
    )
    return Row(
        "Tiers",
        (
            Panel("CPU tier in use", "percentunit", (_now(catalog.HOST_USAGE, "engine"),), top=1),
            Panel("CPU tier blocks", "short", (_now(catalog.HOST_BLOCKS, "state"),), stacked=True),
            Panel("Blocks on disk", "short", (_now(catalog.DISK_BLOCKS, "state"),), stacked=True),
            Panel("Bytes on disk", "bytes", (_now(catalog.DISK_BYTES, "engine"),)),
            Panel("Blocks to and from disk, a second", "short", disk),
            Panel("Prompt tokens found, a second", "short", found),
            Panel("Evictions by tier, a second", "short", (_rate(catalog.EVICTIONS, "tier"),), stacked=True),
            Panel("Preemptions, a second", "short", (_rate(catalog.PREEMPTIONS, "mode"),), "Swaps go to the CPU tier."),
        ),
    )


def _drafts() -> Row:
    right = _share(catalog.ACCEPTED_TOKENS, catalog.DRAFT_TOKENS, "drafts that were right")
    mean = _share(catalog.ACCEPTED_TOKENS, catalog.DRAFTS, "mean accepted length")
    return Row(
        "Speculative decoding",
        (
            Panel("Drafts that were right", "percentunit", (right,), top=1),
            Panel("Mean accepted length", "short", (mean,), catalog.ACCEPTED_TOKENS.help),
            Panel("Drafted tokens, a second", "short", (_rate(catalog.DRAFT_TOKENS, "method"),), stacked=True),
            Panel("Of those right, a second", "short", (_rate(catalog.ACCEPTED_TOKENS, "method"),), stacked=True),
        ),
    )


def _front() -> Row:
    readers = (_rate(catalog.READERS_PAUSED), _rate(catalog.READERS_DROPPED))
    fronts = (_now(catalog.FRONTS, legend="serving"), _rate(catalog.FRONTS_LOST, legend="lost a second"))
    return Row(
        "HTTP",
        (
            Panel("Requests by route", "reqps", (_rate(catalog.HTTP_REQUESTS, "method", "handler"),)),
            Panel("Requests by status", "reqps", (_rate(catalog.HTTP_REQUESTS, "status"),), stacked=True),
            _distribution("Seconds a request", catalog.HTTP_SECONDS, "s"),
            Panel("Refused, by reason", "reqps", (_rate(catalog.REFUSED, "reason"),), stacked=True),
            Panel("Fields that change nothing", "reqps", (_rate(catalog.IGNORED, "field"),), stacked=True),
            Panel("Open connections", "short", (_now(catalog.CONNECTIONS, legend="connections"),)),
            Panel("Front processes", "short", fronts, "Only where a server has several."),
            Panel("Slow readers", "short", readers),
        ),
    )


def _distribution(title: str, metric: Metric, unit: str) -> Panel:
    return Panel(title, unit, _quantiles(metric), metric.help)
