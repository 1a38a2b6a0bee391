"""What simulations found: tables for people, with a column for each policy, and JSON for programs."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quire.core.errors import ConfigError
from quire.simulation.histogram import Percentiles
from quire.simulation.report import Report, Setting, TenantReport

Cell = Callable[[Report], str]

_WIDE = 160
_MOST_TENANTS = 20
"""Tenants shown; all of them are in the JSON."""


def print_reports(reports: list[Report]) -> None:
    """Print what was simulated and what came of it."""
    # a file or a pipe has no width of its own
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    console.print(_heading(reports[0].setting), soft_wrap=True)
    console.print(_table(reports))
    if len(reports[0].tenants) > 1:
        for report in reports:
            console.print(_tenant_table(report))


def write_json(reports: Sequence[msgspec.Struct], path: Path) -> None:
    """Write everything to a file; times are in seconds."""
    try:
        path.expanduser().write_bytes(msgspec.json.format(msgspec.json.encode({"reports": reports}), indent=2))
    except OSError as error:
        raise ConfigError(f"cannot write --json {path}: {error.strerror or error}.") from error


def _heading(setting: Setting) -> Text:
    devices = f"{setting.num_devices} × {setting.device}" if setting.num_devices > 1 else setting.device
    cluster = f"{setting.replicas:,} replicas, each on {devices}" if setting.replicas > 1 else f"on {devices}"
    notes = [
        f"{setting.num_blocks:,} KV blocks of {setting.block_size} tokens"
        + (f" and {setting.num_cpu_blocks:,} on the host" if setting.num_cpu_blocks else ""),
        f"steps of at most {setting.max_num_seqs:,} sequences and {setting.max_num_batched_tokens:,} tokens",
        f"contexts of up to {setting.max_model_len:,}",
    ]
    if setting.attention_ranks > 1:
        notes.append(f"all that for each of {setting.attention_ranks} ranks, which attend to sequences of their own")
    if setting.target_itl_ms is not None:
        notes.append(f"{setting.target_itl_ms:g} ms between tokens aimed for")
    if setting.replicas > 1:
        notes.append(f"{setting.routing} routing")
    if not setting.async_steps:
        notes.append("synchronous steps")
    return Text.assemble(
        (setting.model, "bold"), f" {cluster}: ", "; ".join(notes), ".\n", (setting.workload + ".", "italic")
    )


def _table(reports: list[Report]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for report in reports:
        table.add_column(report.setting.policy, justify="right")
    for title, rows in _sections(reports):
        table.add_row(Text(title, style="bold"))
        for name, cell in rows:
            table.add_row(f"  {name}", *(Text(cell(report)) for report in reports))
    return table


def _sections(reports: list[Report]) -> Iterator[tuple[str, list[tuple[str, Cell]]]]:
    yield "Requests", _request_rows(reports)
    yield (
        "Throughput",
        [
            ("output tokens a second", lambda r: f"{r.throughput.output_tokens_per_second:,.0f}"),
            ("all tokens a second", lambda r: f"{r.throughput.total_tokens_per_second:,.0f}"),
            ("requests a second", lambda r: f"{r.throughput.requests_per_second:,.2f}"),
            ("simulated time", lambda r: seconds(r.throughput.seconds)),
            ("devices busy", lambda r: f"{r.throughput.busy:.1%}"),
        ],
    )
    yield from _latency_sections(reports)
    yield (
        "Steps",
        [
            ("sequences running, mean / most", lambda r: f"{r.steps.mean_running:,.1f} / {r.steps.most_running:,}"),
            ("sequences waiting, mean", lambda r: f"{r.steps.mean_waiting:,.1f}"),
            ("tokens a step, mean", lambda r: f"{r.steps.mean_tokens:,.1f}"),
            ("time of a step, mean", lambda r: seconds(r.steps.mean_seconds)),
            ("steps", lambda r: f"{r.steps.count:,}"),
        ],
    )
    yield "KV cache", _kv_rows(reports)
    yield "Fairness", _fairness_rows(reports)


def _request_rows(reports: list[Report]) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [
        ("arrived", lambda r: f"{r.requests.arrived:,}"),
        ("ended", lambda r: f"{r.requests.ended:,}"),
    ]
    if any(report.requests.refused for report in reports):
        rows.append(("refused, too large", lambda r: f"{r.requests.refused:,}"))
    reasons = sorted({reason for report in reports for reason in report.requests.reasons})
    rows += [(f"sequences: {reason}", _reason_cell(reason)) for reason in reasons]
    if any(report.dropped_beams for report in reports):
        rows.append(("beams dropped on the way", lambda r: f"{r.dropped_beams:,}"))
    return rows


_LATENCIES: tuple[tuple[str, Callable[[Report], Percentiles]], ...] = (
    ("first token", lambda r: r.ttft),
    ("between tokens", lambda r: r.itl),
    ("in the queue", lambda r: r.queue),
    ("arrival to end", lambda r: r.total),
)
_MOMENTS: tuple[tuple[str, Callable[[Percentiles], float]], ...] = (
    ("p50", lambda times: times.p50),
    ("p90", lambda times: times.p90),
    ("p99", lambda times: times.p99),
    ("longest", lambda times: times.most),
)


def _latency_sections(reports: list[Report]) -> Iterator[tuple[str, list[tuple[str, Cell]]]]:
    """One row a latency for one policy; one row a percentile where columns of policies would get too wide."""
    if len(reports) == 1:
        title = "Latency: " + " / ".join(name for name, _ in _MOMENTS)
        yield title, [(name, _spread_cell(times)) for name, times in _LATENCIES]
        return
    for name, times in _LATENCIES:
        yield f"Latency, {name}", [(moment, _moment_cell(times, value)) for moment, value in _MOMENTS]


def _spread_cell(times: Callable[[Report], Percentiles]) -> Cell:
    return lambda report: spread(times(report))


def _moment_cell(times: Callable[[Report], Percentiles], value: Callable[[Percentiles], float]) -> Cell:
    return lambda report: seconds(value(times(report)))


def _reason_cell(reason: str) -> Cell:
    return lambda report: f"{report.requests.reasons.get(reason, 0):,}"


def _waste_cell(way: str) -> Cell:
    return lambda report: f"{report.kv.contiguous_waste[way]:.2%}"


def _kv_rows(reports: list[Report]) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [
        ("blocks in use, mean / peak", lambda r: f"{r.kv.mean_used:.1%} / {r.kv.peak_used:.1%}"),
        ("waste, in blocks", lambda r: f"{r.kv.waste:.2%}"),
    ]
    rows += [(f"waste, in one piece: {way}", _waste_cell(way)) for way in reports[0].kv.contiguous_waste]
    if any(report.kv.sharing_saved > 0 for report in reports):
        rows += [
            ("blocks held, mean", lambda r: f"{r.kv.mean_blocks:,.0f}"),
            ("the same without sharing", lambda r: f"{r.kv.mean_blocks_unshared:,.0f}"),
            ("saved by sharing", lambda r: f"{r.kv.sharing_saved:.1%}"),
        ]
    if any(report.prefix.queries for report in reports):
        rows += [
            ("prompt tokens found in the cache", lambda r: f"{r.prefix.hit_rate:.1%}"),
            ("prompts with a hit", lambda r: f"{r.prefix.hits:,} of {r.prefix.queries:,}"),
            ("cached blocks evicted", lambda r: f"{r.prefix.evictions:,}"),
        ]
    rows += [
        ("preempted, recomputed", lambda r: f"{r.preemptions.recompute:,}"),
        ("preempted, swapped", lambda r: f"{r.preemptions.swap:,}"),
        ("paused with their blocks", lambda r: f"{r.preemptions.paused:,}"),
    ]
    return rows


def _fairness_rows(reports: list[Report]) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [("longest wait for a row", lambda r: seconds(r.fairness.longest_wait))]
    if any(report.fairness.jain is not None for report in reports):
        rows.append(("Jain's index over tenants", lambda r: _optional(r.fairness.jain, "{:.3f}")))
    return rows


def _tenant_table(report: Report) -> Table:
    table = Table(box=SIMPLE_HEAD, title=f"Tenants under {report.setting.policy}", title_justify="left")
    table.add_column("")
    for title in ("requests", "output", "service*", "first token p50", "p99", "longest wait"):
        table.add_column(title, justify="right")
    shown = list(report.tenants.items())[:_MOST_TENANTS]
    for name, tenant in shown:
        table.add_row(Text(name), *_tenant_cells(tenant))
    table.caption = "* tokens a second while it and others had requests waiting"
    if len(report.tenants) > len(shown):
        table.caption += f"; {len(report.tenants) - len(shown):,} more tenants are in the --json file"
    return table


def _tenant_cells(tenant: TenantReport) -> list[str]:
    return [
        f"{tenant.ended:,}",
        f"{tenant.output_tokens:,}",
        _optional(tenant.contended_rate, "{:,.0f}"),
        seconds(tenant.ttft.p50),
        seconds(tenant.ttft.p99),
        seconds(tenant.queue.most),
    ]


def spread(times: Percentiles) -> str:
    """All in the unit that suits the median."""
    if not times.count:
        return "none"
    scale, unit = (1.0, "s") if times.p50 >= 1 else (1e3, "ms")
    return " / ".join(_digits(value(times) * scale) for _, value in _MOMENTS) + f" {unit}"


def _digits(value: float) -> str:
    """Three of them, and never an exponent."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def seconds(value: float) -> str:
    """`850 µs`, `12.3 ms`, `4.5 s`, `12 min`: three digits and the unit that suits them."""
    if value >= 600:
        return f"{value / 60:,.0f} min"
    if value >= 1:
        return f"{value:.3g} s"
    if value >= 1e-3:
        return f"{value * 1e3:.3g} ms"
    return f"{value * 1e6:.0f} µs" if value else "0"


def _optional(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
