"""A comparison's record as one table for the documentation: a row a case, a column a contestant."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paired import middle
from benchmarks.peers.table import FIRST, times_better

_SERVER_UNITS = {"TTFT": "ms", "start": "s", "memory": "MiB"}
"""What servers show beside their rate, where less is better: by a word of its name."""


def tables(record: Mapping[str, Any]) -> list[str]:
    """Medians with their spread; how many times better quire is than each of the others, in their order; its share of
    the machine's limit."""
    figures: Mapping[str, Sequence[Mapping[str, Any]]] = record["figures"]
    shares: Mapping[str, Mapping[str, float]] = record.get("shares", {})
    names = list(dict.fromkeys(figure["contestant"] for each in figures.values() for figure in each))
    ours = [name for name in names if name.split()[0] == FIRST]
    others = [name for name in names if name not in ours]
    header = ["median (spread)", *names, *(f"{name} is" for name in ours)]
    if shares:
        header.append(f"{FIRST}'s share of the limit")
    lines = [f"{_about(record)}.", "", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for case, measured in figures.items():
        values = {name: [each["value"] for each in measured if each["contestant"] == name] for name in names}
        unit, is_less_better = _unit(case)
        cells = [f"{_without_repeat(case)}, {unit}"]
        cells += [middle(values[name]).told() if values[name] else "–" for name in names]
        cells += [", ".join(_ratio(values[name], values[each], is_less_better) for each in others) for name in ours]
        if shares:
            share = shares.get(case, {}).get(FIRST)
            cells.append("" if share is None else f"{100 * share:.0f} %")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _about(record: Mapping[str, Any]) -> str:
    rounds = max(sum(each["contestant"] == FIRST for each in measured) for measured in record["figures"].values())
    limits = record["limits"]
    reads, multiplies = limits["model_bytes"] / 1e9, limits["int8_operations"] / 1e12
    return (
        f"{record['date']}, {record['threads']} threads, {rounds} rounds; the machine reached {reads:.0f} GB/s over "
        f"the model's bytes and {multiplies:.1f} TOP/s in int8"
    )


def _ratio(ours: Sequence[float], theirs: Sequence[float], is_less_better: bool) -> str:
    if not ours or not theirs:
        return "–"
    return f"{times_better(middle(ours).median, middle(theirs).median, is_less_better):.2f} ×"


def _unit(case: str) -> tuple[str, bool]:
    if case.startswith("server"):
        for word, unit in _SERVER_UNITS.items():
            if word in case.rpartition(": ")[2]:
                return unit, True
    return "tok/s", False


def _without_repeat(case: str) -> str:
    """A server's rate is named twice: once as what its case counts, once as what was read."""
    head, _, what = case.rpartition(": output, ")
    return f"{head}: {what}" if head else case
