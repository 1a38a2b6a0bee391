"""Pictures of simulations, and the one door to matplotlib, which is optional and imported when something is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

from quire.core.errors import QuireError

_COLOURS = ("#1f6fb4", "#d9661f", "#2c9a52", "#b33a3a", "#7a57b5")
_TEXT = "#333333"
_GRID = "#dddddd"
_DASHED = (0, (3, 2))


@dataclass(frozen=True, slots=True)
class SimulationCurves:
    """What is drawn of one simulation: curves over time (in seconds) and distributions."""

    name: str
    times: list[float]
    output_rate: list[float]
    """Output tokens a second."""
    input_rate: list[float]
    running: list[float]
    waiting: list[float]
    kv_used: list[float]
    """Share of the blocks, from 0 to 1."""
    ttft: tuple[list[float], list[float]]
    """Seconds, and the share of requests that took at most that long."""
    itl: tuple[list[float], list[float]]
    waste: dict[str, float]
    """Share of allocated KV memory that held nothing, by how memory is handed out."""


def draw_simulations(title: str, runs: Sequence[SimulationCurves], path: Path) -> None:
    """Draw simulations of the same workload on top of each other, to a PNG file."""
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(3, 2, figsize=(12.5, 10.5), layout="constrained")
    figure.suptitle(title, fontsize=11, color=_TEXT, x=0.01, ha="left")
    for (drawer, label), axis in zip(_PANELS, axes.flat, strict=True):
        axis.set_title(label, loc="left", fontsize=10.5, fontweight="bold", color=_TEXT)
        axis.grid(color=_GRID, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=9, colors=_TEXT)
        drawer(axis, runs)
    try:
        figure.savefig(path.expanduser(), format="png", dpi=130)
    except OSError as error:
        raise QuireError(f"cannot write the plot {path}: {error.strerror or error}.") from error
    finally:
        pyplot.close(figure)


def check_matplotlib() -> None:
    """Raise a QuireError when nothing can be drawn; does not load the library."""
    if find_spec("matplotlib") is None:
        raise QuireError("plots need matplotlib, which is not installed; install quire with its plot extra.")


def load_pyplot() -> Any:
    """matplotlib's pyplot, set to draw to files."""
    check_matplotlib()
    import_module("matplotlib").use("Agg")  # draws to files, with or without a screen
    return import_module("matplotlib.pyplot")


def _throughput(axis: Any, runs: Sequence[SimulationCurves]) -> None:
    for colour, run in zip(_COLOURS, runs, strict=False):
        axis.plot(run.times, run.output_rate, color=colour, linewidth=1.5, label=_label("output", run, runs))
        if len(runs) == 1:  # more than these would hide each other
            axis.plot(run.times, run.input_rate, color=colour, linewidth=0.9, alpha=0.45, label="input")
    _over_time(axis, runs, "tokens / s")


def _sequences(axis: Any, runs: Sequence[SimulationCurves]) -> None:
    for colour, run in zip(_COLOURS, runs, strict=False):
        axis.plot(run.times, run.running, color=colour, linewidth=1.5, label=_label("running", run, runs))
        label = _label("waiting", run, runs)
        axis.plot(run.times, run.waiting, color=colour, linewidth=1.1, linestyle=_DASHED, label=label)
    _over_time(axis, runs, "sequences")


def _memory(axis: Any, runs: Sequence[SimulationCurves]) -> None:
    for colour, run in zip(_COLOURS, runs, strict=False):
        axis.plot(run.times, [100 * used for used in run.kv_used], color=colour, linewidth=1.5, label=run.name)
    _over_time(axis, runs, "% of blocks", legend=len(runs) > 1)


def _first_tokens(axis: Any, runs: Sequence[SimulationCurves]) -> None:
    _distribution(axis, [(run.name, run.ttft) for run in runs], "time to first token")


def _gaps(axis: Any, runs: Sequence[SimulationCurves]) -> None:
    _distribution(axis, [(run.name, run.itl) for run in runs], "time between tokens")


def _waste(axis: Any, runs: Sequence[SimulationCurves]) -> None:
    names = list(runs[0].waste)
    height = 0.8 / len(runs)
    for position, (colour, run) in enumerate(zip(_COLOURS, runs, strict=False)):
        offsets = [row + (position - (len(runs) - 1) / 2) * height for row in range(len(names))]
        percents = [100 * run.waste[name] for name in names]
        bars = axis.barh(offsets, percents, height=height, color=colour, label=run.name)
        axis.bar_label(bars, fmt="%.1f %%", padding=3, fontsize=8.5, color=_TEXT)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlim(0, 112)
    axis.set_xticks(range(0, 101, 20))
    axis.set_xlabel("% of allocated KV memory that holds no token", fontsize=9, color=_TEXT)
    axis.grid(visible=False, axis="y")
    if len(runs) > 1:
        _legend(axis)


_PANELS = (
    (_throughput, "Throughput"),
    (_first_tokens, "Time to the first token"),
    (_sequences, "Sequences"),
    (_gaps, "Time between tokens"),
    (_memory, "KV cache in use"),
    (_waste, "KV memory wasted"),
)


def _over_time(axis: Any, runs: Sequence[SimulationCurves], unit: str, legend: bool = True) -> None:
    longest = max((run.times[-1] for run in runs if run.times), default=1.0)
    axis.set_xlim(0, longest)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("simulated time (s)", fontsize=9, color=_TEXT)
    axis.set_ylabel(unit, fontsize=9, color=_TEXT)
    axis.yaxis.set_major_formatter(_plain_number)
    if legend:
        _legend(axis)


def _distribution(axis: Any, curves: list[tuple[str, tuple[list[float], list[float]]]], what: str) -> None:
    """A cumulative distribution over a logarithmic time scale, with the 99th percentile marked."""
    axis.set_xscale("log")
    low, high = inf, 0.0
    for colour, (name, (values, shares)) in zip(_COLOURS, curves, strict=False):
        times = [1e3 * value for value in values]
        axis.step(times, [100 * share for share in shares], where="post", color=colour, linewidth=1.5, label=name)
        low, high = min([low, *times]), max([high, *times])
    axis.axhline(99, color="#999999", linewidth=0.8, linestyle=_DASHED)
    axis.annotate("p99", (1.01, 99), xycoords=("axes fraction", "data"), fontsize=8, color="#777777", va="center")
    axis.set_ylim(0, 101)
    if high > 0:
        axis.set_xlim(low * 0.9, high * 1.1)
    axis.set_xlabel(f"{what} (ms)", fontsize=9, color=_TEXT)
    axis.set_ylabel("% at most that long", fontsize=9, color=_TEXT)
    ticker = import_module("matplotlib.ticker")
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(_plain_number)
    axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    if len(curves) > 1:
        _legend(axis)


def _plain_number(value: float, _: int) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _legend(axis: Any) -> None:
    axis.legend(fontsize=8.5, frameon=False, labelcolor=_TEXT)


def _label(what: str, run: SimulationCurves, runs: Sequence[SimulationCurves]) -> str:
    return what if len(runs) == 1 else f"{run.name}, {what}"
