"""A record of the agreement as a table in Markdown: both generators beside the wire, and how far apart they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.loadgen_agreement.quantities import NAMES
from benchmarks.paired import Middle, difference, middle

_COLUMNS = (
    "median of the rounds (spread)",
    "quire bench",
    "guidellm",
    "quire bench from the wire",
    "guidellm from the wire",
    "apart",
)


def tables(record: Mapping[str, Any]) -> list[str]:
    """With a line about what was sent. All differences are of the same round."""
    ours, theirs = record["rounds"]["quire"], record["rounds"]["guidellm"]
    where = ", server and generators on cores of their own" if record.get("apart") else ""
    lines = [
        f"{record['about']}; {len(ours)} rounds of each, in turns{where}, guidellm {record['guidellm']}.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---" * len(_COLUMNS) + "|",
    ]
    for field, (name, unit, scale) in NAMES.items():
        mine, other = [each[field] for each in ours], [each[field] for each in theirs]
        my_wire, other_wire = [each["wire"][field] for each in ours], [each["wire"][field] for each in theirs]
        cells = [f"{name}, {unit}", middle(mine).told(scale), middle(other).told(scale)]
        cells += map(_told, (difference(mine, my_wire), difference(other, other_wire)))
        cells.append(_told(difference(_over(mine, my_wire), _over(other, other_wire))))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _over(values: Sequence[float], references: Sequence[float]) -> list[float]:
    return [value / reference for value, reference in zip(values, references, strict=True)]


def _told(share: Middle) -> str:
    return f"{share.median:+.1%} ({share.least:+.1%} to {share.most:+.1%})"
