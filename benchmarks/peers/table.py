"""Rounds of figures as medians with their spread, ratios and shares of the machine's limit."""

from dataclasses import dataclass
from statistics import median

from benchmarks.peers.cases import Case
from benchmarks.peers.limits import Limits
from benchmarks.peers.model_work import ModelWork

FIRST = "quire"
"""Whom the others are compared with."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement, and how many processors others used meanwhile."""

    contestant: str
    value: float
    others: float


def limit_share(case: Case, rate: float, bytes_per_token: float, work: ModelWork, limits: Limits) -> float:
    """How much of what the machine can do a rate is: of its reads when decoding alone, of its int8 matmuls otherwise.

    Above 1 is possible for reads: the rate of reading was itself only measured.
    """
    if case.counts == "decode":
        return rate * bytes_per_token / limits.model_bytes
    tokens = case.prompt if case.counts == "prompt" else case.streams * case.output
    return work.operations(case) * rate / tokens / limits.int8_operations


def lines(title: str, figures: list[Figure], unit: str, shares: dict[str, float], lower_is_better: bool) -> list[str]:
    """A table in Markdown: one line a contestant, in the order they came."""
    names = list(dict.fromkeys(figure.contestant for figure in figures))
    medians = {name: median(_values(figures, name)) for name in names}
    made = [
        f"\n{title}\n",
        f"| | {unit} | spread | {FIRST} is | of the limit | others' use |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        values = _values(figures, name)
        ratio = ""
        if FIRST in medians and name != FIRST:
            ratio = f"{times_better(medians[FIRST], medians[name], lower_is_better):.2f} ×"
        share = f"{shares[name]:.0%}" if name in shares else ""
        others = max(figure.others for figure in figures if figure.contestant == name)
        spread = f"{min(values):,.4g} – {max(values):,.4g}"
        made.append(f"| {name} | {medians[name]:,.4g} | {spread} | {ratio} | {share} | {others:.2f} |")
    return made


def medians_of(figures: list[Figure]) -> dict[str, float]:
    return {name: median(_values(figures, name)) for name in dict.fromkeys(figure.contestant for figure in figures)}


def _values(figures: list[Figure], contestant: str) -> list[float]:
    return [figure.value for figure in figures if figure.contestant == contestant]


def times_better(ours: float, theirs: float, lower_is_better: bool) -> float:
    return theirs / ours if lower_is_better else ours / theirs
