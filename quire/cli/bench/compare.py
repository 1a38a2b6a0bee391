"""`quire bench compare`: what got faster or slower between two reports, beyond noise."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quire.bench.comparison import Change
from quire.bench.comparison import compare as compare_measures
from quire.bench.report import read_report
from quire.bench.summary_rows import Grid, digits
from quire.cli.bench.outputs import print_grids
from quire.config.bounds import check
from quire.core.errors import ConfigError

Before = Annotated[Path, Parameter(help="A --json file of a benchmark.")]
After = Annotated[Path, Parameter(help="The same benchmark, measured later.")]
Margin = Annotated[float, Parameter(help="Ignore differences up to this share: 0.05 is 5 %.")]
Fail = Annotated[bool, Parameter(help="End with exit code 1 if something got slower.", negative="")]
_SLOWER = 1


def compare(before: Before, after: After, /, *, margin: Margin = 0.05, fail: Fail = False) -> int:
    """Compare two reports of the same kind; a quantity's change counts when noise does not explain it."""
    check(0 <= margin < 1, "margin", margin, "from 0 to below 1", "0.05 is 5 %")
    old, new = read_report(before), read_report(after)
    if old.kind != new.kind:
        raise ConfigError(f"{before} is a benchmark of {old.kind} and {after} of {new.kind}; compare equal kinds.")
    changes = compare_measures(old.measures, new.measures, margin)
    if not changes:
        raise ConfigError(f"{before} and {after} have no quantity in common; compare the same benchmark.")
    header = ["", "", "before", "after", "times\nbetter", "95 % of\nresamples"]
    notes = [
        f"setting {name}: {first!r} and {second!r}" for name, first, second in _differences(old.setting, new.setting)
    ]
    if any(change.verdict == "unknown" for change in changes):
        notes.append("unknown: fewer than three runs; measure with --repeats 3 or more to know the noise.")
    grid = Grid("Changes", header, [_row(change) for change in changes])
    print_grids(f"{before} → {after}", [grid], notes, shrinks="names")
    slower = any(change.verdict == "slower" for change in changes)
    return _SLOWER if fail and slower else 0


def _row(change: Change) -> list[str]:
    scale, unit = (1e3, "ms") if change.measure.unit == "s" else (1.0, change.measure.unit)
    between = "" if change.interval is None else f"{change.interval[0]:.3f} – {change.interval[1]:.3f}"
    name = f"{change.measure.name} ({unit})"
    numbers = [digits(change.before * scale), digits(change.after * scale), f"{change.gain:.3f}"]
    return [name, "" if change.verdict == "same" else change.verdict, *numbers, between]


def _differences(old: dict[str, object], new: dict[str, object]) -> list[tuple[str, object, object]]:
    """Settings that differ; the place of a server does not matter."""
    names = [name for name in {**old, **new} if name not in ("url", "seconds")]
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
