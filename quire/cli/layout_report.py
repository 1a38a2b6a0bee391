"""Layouts that `quire plan --find` has judged, as a table with reasons and as JSON."""

import json
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quire.simulation.goals import LatencyGoals
from quire.simulation.layouts import ATTAINED, Layout, best_of

_COMPARED = 3
"""Layouts beside the proposed one of which is told why not."""


def print_layouts(layouts: list[Layout], model: str, device: str, goals: LatencyGoals) -> None:
    """The proposal first, then what it was chosen from."""
    console = Console(highlight=False)
    console.print(Text(_proposal(layouts, model, device, goals), style="bold"), soft_wrap=True)
    table = Table(box=SIMPLE)
    for name in ("layout", "KV tokens", "bound", "goodput", "TTFT p99", "TPOT", "all-reduce"):
        table.add_column(name, justify="right", no_wrap=True)
    for layout in _best_first(layouts):
        table.add_row(*_cells(layout))
    if table.row_count:
        console.print(table)
        console.print(
            "Bound and goodput are requests a second of all replicas; computed and simulated, not measured. Layouts "
            "whose bound is below the best goodput are not simulated.",
            style="dim",
        )
    for layout in layouts:
        if layout.problem:
            console.print(f"{layout}: {layout.problem}", soft_wrap=True)


def layouts_as_json(layouts: list[Layout], goals: LatencyGoals) -> str:
    """All of them, and which is proposed; times are in seconds."""
    best = best_of(layouts)
    values: dict[str, Any] = {"goals_ms": asdict(goals), "attained": ATTAINED}
    values["layouts"] = [asdict(layout) for layout in layouts]
    values["proposed"] = None if best is None else asdict(best)
    return json.dumps(values, indent=2)


def _proposal(layouts: list[Layout], model: str, device: str, goals: LatencyGoals) -> str:
    best = best_of(layouts)
    number = layouts[0].num_devices
    if best is None:
        return (
            f"No layout of {model} on {number} x {device} meets --ttft {goals.ttft:g} and --tpot {goals.tpot:g}; "
            "allow more time, or give more or larger devices."
        )
    text = (
        f"{model} on {number} x {device}: {_flags(best)} serves {best.goodput:.1f} requests a second, "
        f"{ATTAINED:.0%} of them with their first token within {goals.ttft:g} ms and {goals.tpot:g} ms a token."
    )
    return text + _comparison(best, layouts)


def _comparison(best: Layout, layouts: list[Layout]) -> str:
    """Why not the next best."""
    reasons = []
    for other in [layout for layout in _best_first(layouts) if layout is not best][:_COMPARED]:
        assert other.bound is not None, "what is compared has a bound"
        reached = other.goodput or other.bound.rate * other.schedulers
        share = f"{'' if other.goodput else 'at most '}{reached / best.goodput:.0%}"
        if other.pipeline_parallel_size > best.pipeline_parallel_size:
            why = f"each of its {other.pipeline_parallel_size} stages reads its weights for a part of the answers only"
        elif other.expert_parallel and not best.expert_parallel:
            why = "ranks wait for the one whose experts were chosen most"
        elif other.tensor_parallel_size > best.tensor_parallel_size:
            why = f"{other.collectives:.0%} of its steps are all-reduces over {other.link}, and its replicas are fewer"
        else:
            why = f"its replicas hold {other.num_tokens:,} tokens of KV instead of {best.num_tokens:,}"
        reasons.append(f" {other} serves {share} of that: {why}.")
    return "".join(reasons)


def _best_first(layouts: list[Layout]) -> list[Layout]:
    """Those that could serve in time, by goodput and then by bound."""
    bounded = [(layout, layout.bound.rate * layout.schedulers) for layout in layouts if layout.bound is not None]
    return [layout for layout, rate in sorted(bounded, key=lambda each: (each[0].goodput, each[1]), reverse=True)]


def _flags(layout: Layout) -> str:
    if layout.attention_ranks > 1:
        return f"--data-parallel-size {layout.attention_ranks} --enable-expert-parallel --replicas {layout.replicas}"
    flags = f"--tensor-parallel-size {layout.tensor_parallel_size}"
    if layout.pipeline_parallel_size > 1:
        flags += f" --pipeline-parallel-size {layout.pipeline_parallel_size}"
    if layout.expert_parallel:
        flags += " --enable-expert-parallel"
    return f"{flags} --replicas {layout.replicas}"


def _cells(layout: Layout) -> tuple[str, ...]:
    assert layout.bound is not None, "what is shown has a bound"
    simulated = ("", "", "")
    if layout.goodput:
        simulated = (f"{layout.goodput:.1f}", f"{1e3 * layout.ttft_p99:,.0f} ms", f"{1e3 * layout.tpot:.1f} ms")
    return (
        str(layout),
        f"{layout.num_tokens:,}",
        f"{layout.bound.rate * layout.schedulers:.1f}",
        *simulated,
        f"{layout.collectives:.0%}",
    )
