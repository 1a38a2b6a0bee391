"""All runs of a record in tables: requests by how they ended, faults and how soon all was well, memory, violations."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from tests.soak.outcome import KINDS

Lines = list[dict[str, Any]]
_MIB = 1 << 20


def summary(runs: Sequence[Lines]) -> str:
    """As Markdown."""
    parts = [
        "# Under fire",
        "",
        _head(runs),
        "",
        *_requests(runs),
        "",
        *_faults(runs),
        "",
        *_growth(runs),
        "",
        *_broken(runs),
    ]
    return "\n".join(parts)  # fmt: skip


def _all(runs: Sequence[Lines], kind: str) -> Iterable[dict[str, Any]]:
    return (line for lines in runs for line in lines if line["type"] == kind)


def _head(runs: Sequence[Lines]) -> str:
    seconds = sum(max((line["at"] for line in lines), default=0.0) for lines in runs)
    machines = sorted({line["machine"] for line in _all(runs, "run")})
    seeds = ", ".join(str(line["seed"]) for line in _all(runs, "run"))
    runs_word = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{seconds / 60:.0f} minutes in {runs_word} (seeds {seeds}) on {'; '.join(machines)}."


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    made = [list(head), ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in made]


def _requests(runs: Sequence[Lines]) -> list[str]:
    by_scene: dict[str, Counter[str]] = defaultdict(Counter)
    for line in _all(runs, "sample"):
        by_scene[line["scene"]].update(line["outcomes"])
    by_scene["all"] = sum(by_scene.values(), Counter())
    kinds = [kind for kind in KINDS if by_scene["all"][kind] or kind == "wrong"]
    rows = [
        [scene, f"{counts.total():,}", *(f"{counts[kind]:,}" for kind in kinds)] for scene, counts in by_scene.items()
    ]
    return _table(["scene", "requests", *kinds], rows)


def _faults(runs: Sequence[Lines]) -> list[str]:
    by_name: dict[str, list[float]] = defaultdict(list)
    for line in _all(runs, "fault"):
        by_name[line["name"]].append(line["well_after"])
    rows = [
        [name, len(taken), f"{median(taken):.1f} s", f"{max(taken):.1f} s"] for name, taken in sorted(by_name.items())
    ]
    return _table(["fault", "times", "all well after: median", "longest"], rows)


def _growth(runs: Sequence[Lines]) -> list[str]:
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in _all(runs, "growth"):
        by_kind[line["process"]].append(line)
    rows = []
    for kind, lines in sorted(by_kind.items()):
        longest = max(line["minutes"] for line in lines)
        row: list[object] = [kind, f"{longest:.0f}"]
        for quantity, unit in (("memory", _MIB), ("descriptors", 1), ("threads", 1)):
            found = [line for line in lines if line["quantity"] == quantity and line["minutes"] == longest]
            row.append(f"{found[0]['first'] / unit:,.0f}, {found[0]['per_hour'] / unit:+,.1f}")
        rows.append(row)
    return _table(["the longest-lived", "minutes", "MiB, and more an hour", "descriptors", "threads"], rows)


def _broken(runs: Sequence[Lines]) -> list[str]:
    found = Counter(line["what"] for line in _all(runs, "violation"))
    if not found:
        return ["No promise was broken."]
    return [f"Promises that were broken: {', '.join(f'{what} ({times})' for what, times in found.most_common())}."]
