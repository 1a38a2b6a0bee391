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


def print_layouts(layouts: list[Layout], model: str, device: str, goals: LatencyGoals) -> None:
    """The proposal first, then what it was chosen from."""
    console = Console(highlight=False)
    console.print(Text(_proposal(layouts, model, device, goals), style="bold"), soft_wrap=True)
    table = Table(box=SIMPLE)
    for name in ("TP x replicas", "KV tokens", "bound", "goodput", "TTFT p99", "TPOT", "all-reduce"):
        table.add_column(name, justify="right")
    for layout in layouts:
        if layout.goodput:
            table.add_row(*_cells(layout))
    if table.row_count:
        console.print(table)
        console.print("Bound and goodput are requests a second of all replicas; simulated, not measured.", style="dim")
    for layout in layouts:
        if layout.problem:
            console.print(f"{_name(layout)}: {layout.problem}", soft_wrap=True)


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
        f"{model} on {number} x {device}: --tensor-parallel-size {best.tensor_parallel_size} --replicas "
        f"{best.replicas} serves {best.goodput:.1f} requests a second, {ATTAINED:.0%} of them with their first token "
        f"within {goals.ttft:g} ms and {goals.tpot:g} ms a token."
    )
    return text + _comparison(best, layouts)


def _comparison(best: Layout, layouts: list[Layout]) -> str:
    """Why not the layouts beside it."""
    reasons = []
    for other in layouts:
        if other is best or not other.goodput:
            continue
        share = other.goodput / best.goodput
        if other.tensor_parallel_size > best.tensor_parallel_size:
            why = f"{other.collectives:.0%} of its steps are all-reduces over {other.link}, and its replicas are fewer"
        else:
            why = f"its replicas hold {other.num_tokens:,} tokens of KV instead of {best.num_tokens:,}"
        reasons.append(f" {_name(other)} serves {share:.0%} of that: {why}.")
    return "".join(reasons)


def _name(layout: Layout) -> str:
    return f"TP {layout.tensor_parallel_size} x {layout.replicas}"


def _cells(layout: Layout) -> tuple[str, ...]:
    assert layout.bound is not None, "what is simulated has a bound"
    return (
        f"{layout.tensor_parallel_size} x {layout.replicas}",
        f"{layout.num_tokens:,}",
        f"{layout.bound.rate * layout.replicas:.1f}",
        f"{layout.goodput:.1f}",
        f"{1e3 * layout.ttft_p99:,.0f} ms",
        f"{1e3 * layout.tpot:.1f} ms",
        f"{layout.collectives:.0%}",
    )
