"""Comparisons of engines as PNG pictures: bars with their spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from quire.observe.plots import load_pyplot

_OURS, _OTHERS = "#1f6fb4", "#9aa7b4"
_TEXT = "#333333"
_GRID = "#dddddd"


@dataclass(frozen=True, slots=True)
class PeerBars:
    """One case of a comparison: a median and the spread around it by contestant."""

    title: str
    values: Mapping[str, tuple[float, float, float]]
    """Median, least and most."""
    unit: str = "tokens / s"


def bars_picture(title: str, cases: Sequence[PeerBars]) -> bytes:
    """One panel a case, one bar a contestant, with its spread."""
    figure, axes = _panels(len(cases), title)
    for axis, case in zip(axes, cases, strict=False):
        names = list(case.values)
        medians = [case.values[name][0] for name in names]
        below = [middle - case.values[name][1] for middle, name in zip(medians, names, strict=True)]
        above = [case.values[name][2] - middle for middle, name in zip(medians, names, strict=True)]
        colours = [_OURS, *[_OTHERS] * (len(names) - 1)]
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


def _png(figure: Any) -> bytes:
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    load_pyplot().close(figure)
    return drawn.getvalue()
