"""A record of the agreement as a table in Markdown: medians of both generators, and how far apart they are."""

from collections.abc import Mapping
from typing import Any

from benchmarks.loadgen_agreement.quantities import NAMES
from benchmarks.paired import difference, middle


def tables(record: Mapping[str, Any]) -> list[str]:
    """With a line about what was sent. The difference is quire's from guidellm's, round by round."""
    ours, theirs = record["rounds"]["quire"], record["rounds"]["guidellm"]
    where = ", server and generators on cores of their own" if record.get("apart") else ""
    lines = [
        f"{record['about']}; {len(ours)} rounds of each, in turns{where}, guidellm {record['guidellm']}.",
        "",
        "| median of the rounds (spread) | quire bench | guidellm | quire bench differs by |",
        "|---|---|---|---|",
    ]
    for field, (name, unit, scale) in NAMES.items():
        mine, other = [each[field] for each in ours], [each[field] for each in theirs]
        apart = difference(mine, other)
        shown = f"{apart.median:+.1%} ({apart.least:+.1%} to {apart.most:+.1%})"
        lines.append(f"| {name}, {unit} | {middle(mine).told(scale)} | {middle(other).told(scale)} | {shown} |")
    return lines
