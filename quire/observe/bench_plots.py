"""Pictures of benchmarks as PNG bytes: latencies, latency over load, a server over time, peers, kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import Any

from quire.observe.plots import load_pyplot

_COLOURS = ("#1f6fb4", "#d9661f", "#2c9a52", "#b33a3a", "#7a57b5", "#4a9aa8")
_TEXT = "#333333"
_GRID = "#dddddd"
_MOST_POINTS = 2000
"""Of one curve: more cannot be told apart."""
_LINES_BETWEEN = 4
"""Bars that would fit where a panel has its title and its axis."""


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """A latency over loads: its median and a high percentile, in seconds."""

    name: str
    loads: Sequence[float]
    medians: Sequence[float]
    highs: Sequence[float]
    bound: float | None
    """What an objective allows."""


@dataclass(frozen=True, slots=True)
class ServerTimeline:
    """What a server said of itself; None where it said nothing."""

    times: Sequence[float]
    running: Sequence[float | None]
    waiting: Sequence[float | None]
    kv: Sequence[float | None]
    """Share in use, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class PeerBars:
    """One case of a comparison: a median and the spread around it by contestant."""

    title: str
    values: Mapping[str, tuple[float, float, float]]
    """Median, least and most."""
    unit: str = "tokens / s"


def distribution_picture(title: str, curves: Mapping[str, Sequence[float]]) -> bytes:
    """Cumulative distributions of latencies in seconds, one panel each."""
    figure, axes = _panels(len(curves), title)
    for axis, (name, samples) in zip(axes, curves.items(), strict=False):
        ordered = sorted(samples)
        step = max(1, len(ordered) // _MOST_POINTS)
        times = [1e3 * value for value in ordered[::step]]
        shares = [100 * (place + 1) / len(ordered) for place in range(0, len(ordered), step)]
        axis.step(times, shares, where="post", color=_COLOURS[0], linewidth=1.5)
        if times and times[0] > 0 and times[-1] / times[0] > 20:
            _log_scale(axis)
        axis.axhline(99, color="#999999", linewidth=0.8, linestyle=(0, (3, 2)))
        _finish(axis, name, f"{name} (ms)", "% at most that long")
        axis.set_ylim(0, 101)
    return _png(figure)


def load_picture(
    title: str, over: str, curves: Sequence[LoadCurve], loads: Sequence[float], rates: Mapping[str, Sequence[float]]
) -> bytes:
    """Latencies over load, and rates over `loads` in a last panel. A load at which nothing was answered has a rate, and
    is missing in the curves."""
    figure, axes = _panels(len(curves) + 1, title)
    for axis, curve in zip(axes, curves, strict=False):
        for values, label, style in ((curve.medians, "median", "-"), (curve.highs, "p99", "--")):
            times = [1e3 * value for value in values]
            axis.plot(curve.loads, times, style, color=_COLOURS[0], marker="o", markersize=3.5, label=label)
        if curve.bound is not None:
            axis.axhline(1e3 * curve.bound, color=_COLOURS[3], linewidth=1, label="objective")
        _finish_load(axis, curve.name, over, "ms", loads)
    last = axes[len(curves)]
    for colour, (name, values) in zip(_COLOURS, rates.items(), strict=False):
        last.plot(loads, values, color=colour, marker="o", markersize=3.5, label=name)
    _finish_load(last, "Throughput", over, "tokens / s", loads)
    return _png(figure)


def timeline_picture(title: str, timeline: ServerTimeline) -> bytes:
    """Batch and KV use over time."""
    figure, axes = _panels(2, title)
    for values, label, colour in (
        (timeline.running, "running", _COLOURS[0]),
        (timeline.waiting, "waiting", _COLOURS[1]),
    ):
        _known(axes[0], timeline.times, values, label, colour)
    _finish(axes[0], "Requests", "time (s)", "requests")
    _whole_numbers(axes[0].yaxis, [value for value in timeline.running if value is not None])
    axes[0].legend(fontsize=8.5, frameon=False, labelcolor=_TEXT)
    used = [None if value is None else 100 * value for value in timeline.kv]
    _known(axes[1], timeline.times, used, "in use", _COLOURS[2])
    _finish(axes[1], "KV cache", "time (s)", "% in use")
    for axis in axes:
        axis.set_ylim(bottom=0)
    return _png(figure)


def bars_picture(title: str, cases: Sequence[PeerBars]) -> bytes:
    """One panel a case, one bar a contestant, with its spread."""
    figure, axes = _panels(len(cases), title)
    for axis, case in zip(axes, cases, strict=False):
        names = list(case.values)
        medians = [case.values[name][0] for name in names]
        below = [middle - case.values[name][1] for middle, name in zip(medians, names, strict=True)]
        above = [case.values[name][2] - middle for middle, name in zip(medians, names, strict=True)]
        colours = [_COLOURS[0], *["#9aa7b4"] * (len(names) - 1)]
        axis.barh(names, medians, xerr=(below, above), color=colours, error_kw={"elinewidth": 1, "ecolor": _TEXT})
        for place, name in enumerate(names):  # past the end of the spread, where it hides nothing
            value, _, most = case.values[name]
            shown = f" {value:,.0f}" if value >= 1000 else f" {value:.3g}"
            axis.annotate(shown, (most, place), va="center", fontsize=9, color=_TEXT)
        axis.invert_yaxis()
        axis.margins(x=0.2)
        _finish(axis, case.title, case.unit, "")
        axis.grid(visible=False, axis="y")
    return _png(figure)


def shares_picture(title: str, ops: Mapping[str, Mapping[str, float]]) -> bytes:
    """One panel an op, one bar a case: its share of what the machine can do, from 0 to 1."""
    columns = _side_by_side(ops)
    tallest = max(map(_lines, columns))
    figure = load_pyplot().figure(figsize=(7 * len(columns), 0.5 + 0.2 * tallest), layout="constrained")
    figure.suptitle(title, fontsize=11, color=_TEXT, x=0.01, ha="left")
    for part, column in zip(figure.subfigures(1, len(columns), squeeze=False).flat, columns, strict=True):
        heights = [len(cases) + _LINES_BETWEEN for cases in column.values()]
        below = [tallest - _lines(column)] if _lines(column) < tallest else []  # so that all bars are as thick
        axes = list(part.subplots(len(heights + below), 1, height_ratios=heights + below, squeeze=False).flat)
        for unused in axes[len(column) :]:
            unused.set_axis_off()
        for axis, (op, cases) in zip(axes[: len(column)], column.items(), strict=True):
            _draw_shares(axis, op, cases)
    return _png(figure)


def _side_by_side(ops: Mapping[str, Mapping[str, float]]) -> list[dict[str, Mapping[str, float]]]:
    """Two columns, or one of a single op; each op goes below the shorter of them."""
    columns: list[dict[str, Mapping[str, float]]] = [{} for _ in range(min(2, len(ops)))]
    for op, cases in ops.items():
        min(columns, key=_lines)[op] = cases
    return columns


def _lines(column: Mapping[str, Mapping[str, float]]) -> int:
    return sum(len(cases) + _LINES_BETWEEN for cases in column.values())


def _draw_shares(axis: Any, op: str, cases: Mapping[str, float]) -> None:
    shares = [100 * share for share in cases.values()]
    bars = axis.barh(list(cases), shares, color=_COLOURS[0], height=0.7)
    axis.bar_label(bars, fmt="%.0f", fontsize=7.5, color=_TEXT, padding=2)
    axis.axvline(100, color=_COLOURS[3], linewidth=1)
    axis.set_ylim(len(cases) - 0.4, -0.6)  # the first on top
    axis.set_xlim(0, max(110, *shares))
    _finish(axis, op, "% of limit", "")
    axis.tick_params(axis="y", labelsize=7.5)


def _panels(count: int, title: str) -> tuple[Any, list[Any]]:
    columns = min(2, count)
    rows = -(-count // columns)
    figure, axes = load_pyplot().subplots(
        rows, columns, figsize=(6 * columns, 3.4 * rows), layout="constrained", squeeze=False
    )
    figure.suptitle(title, fontsize=11, color=_TEXT, x=0.01, ha="left")
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.set_visible(False)
    return figure, flat[:count]


def _finish(axis: Any, title: str, x: str, y: str) -> None:
    axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=_TEXT)
    axis.set_xlabel(x, fontsize=9, color=_TEXT)
    axis.set_ylabel(y, fontsize=9, color=_TEXT)
    axis.grid(color=_GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=9, colors=_TEXT)


def _finish_load(axis: Any, title: str, over: str, y: str, loads: Sequence[float]) -> None:
    _finish(axis, title, over, y)
    _whole_numbers(axis.xaxis, loads)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8.5, frameon=False, labelcolor=_TEXT)


def _known(axis: Any, times: Sequence[float], values: Sequence[float | None], label: str, colour: str) -> None:
    pairs = [(time, value) for time, value in zip(times, values, strict=True) if value is not None]
    axis.plot([time for time, _ in pairs], [value for _, value in pairs], color=colour, linewidth=1.5, label=label)


def _whole_numbers(axis: Any, values: Sequence[float]) -> None:
    """Marks at whole numbers only, where there are no others."""
    if all(value % 1 == 0 for value in values):
        axis.get_major_locator().set_params(integer=True)


def _log_scale(axis: Any) -> None:
    ticker = import_module("matplotlib.ticker")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 100 else f"{value:g}")
    axis.xaxis.set_minor_formatter(ticker.NullFormatter())


def _png(figure: Any) -> bytes:
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    load_pyplot().close(figure)
    return drawn.getvalue()
