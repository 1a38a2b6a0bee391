"""Charts as SVG text: lines with limits, and bars. Colours are classes, so that a page's theme decides on them.

A chart is drawn for a card of a phone's width; wider pages set several beside each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from quire.bench.axis import Axis, linear_axis, log_axis
from quire.observe.theme import theme_css

_WIDTH, _HEIGHT = 360, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 350, 48, 196
_CHARACTER = 6.1
"""Width of a character of a legend, about."""
_BAR_ROW = 30
_LOG_FROM = 20
"""Span of values, highest by lowest, from which an axis is logarithmic where it may be."""
_NEAR = 3
"""A limit that is more than so many times above the data, or below, is named at the edge: the axis is for the data."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """Points by rising x."""

    name: str
    points: Sequence[Point]
    has_dots: bool = False
    is_stepped: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """What a value must keep to: beyond it, the paper is red."""

    value: float
    text: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """One or two lines over a quantity."""

    title: str
    x_name: str
    lines: Sequence[Line]
    x_limit: Limit | None = None
    y_limit: Limit | None = None
    lower_is_bad: bool = False
    """Of `y_limit`: below it is beyond it."""
    may_be_log: bool = False
    y_high: float | None = None
    """Where the y axis ends, if not at the data."""

    def svg(self) -> str:
        if not any(line.points for line in self.lines):
            return _svg(self.title, _HEIGHT, f'<text class="tick" x="{_LEFT}" y="90">Nothing was measured.</text>')
        x, y = self._x_axis(), self._y_axis()
        parts = [_grid(x, y, self.x_name), self._limits(x, y)]
        parts += [_drawn(line, place, x, y) for place, line in enumerate(self.lines)]
        if len(self.lines) > 1:
            parts.append(_legend([line.name for line in self.lines]))
        return _svg(self.title, _HEIGHT, "".join(parts))

    def _x_axis(self) -> Axis:
        values = [x for line in self.lines for x, _ in line.points]
        is_log = self.may_be_log and min(values) > 0 and max(values) / min(values) > _LOG_FROM
        if self.x_limit is not None and _is_near(self.x_limit, values):
            values = [*values, self.x_limit.value]
        return log_axis(values, _LEFT, _RIGHT) if is_log else linear_axis(values, _LEFT, _RIGHT, from_zero=False)

    def _y_axis(self) -> Axis:
        values = [y for line in self.lines for _, y in line.points]
        if self.y_high is not None:
            values = [*values, self.y_high]
        elif self.y_limit is not None and _is_near(self.y_limit, values):
            values = [*values, self.y_limit.value]
        return linear_axis(values, _BOTTOM, _TOP, from_zero=True)

    def _limits(self, x: Axis, y: Axis) -> str:
        parts = []
        if self.x_limit is not None:
            at = x.place(self.x_limit.value)
            parts.append(_zone(at, _TOP, _RIGHT, _BOTTOM))
            parts.append(f'<path class="limit" d="M{at:.1f} {_TOP}V{_BOTTOM}"/>')
        if self.y_limit is not None:
            at = y.place(self.y_limit.value)
            parts.append(_zone(_LEFT, at, _RIGHT, _BOTTOM) if self.lower_is_bad else _zone(_LEFT, _TOP, _RIGHT, at))
            parts.append(f'<path class="limit" d="M{_LEFT} {at:.1f}H{_RIGHT}"/>')
        # above the plot, where no line crosses it
        texts = " · ".join(limit.text for limit in (self.x_limit, self.y_limit) if limit is not None)
        return "".join([*parts, _text("limit-text", _RIGHT, 38, texts, "end") if texts else ""])


@dataclass(frozen=True, slots=True)
class Bar:
    """A value, and the least and most of several where there were."""

    name: str
    value: float
    text: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars below each other, each with its name above it: names may be long."""

    title: str
    bars: Sequence[Bar]
    limit: Limit | None = None

    def svg(self) -> str:
        ends = [bar.most if bar.most is not None else bar.value for bar in self.bars]
        highest = max([*ends, self.limit.value if self.limit is not None else 0.0, 1e-12])
        axis = Axis(0.0, highest, 10, _RIGHT, ())
        tops = [34 + _BAR_ROW * place for place in range(len(self.bars))]
        parts = [_bar(bar, axis, top) for bar, top in zip(self.bars, tops, strict=True)]
        if self.limit is not None:
            at = axis.place(self.limit.value)
            parts += [f'<path class="limit" d="M{at:.1f} {top + 14}v10"/>' for top in tops]
            parts.append(_text("limit-text", _RIGHT, 20, self.limit.text, "end"))
        return _svg(self.title, 44 + _BAR_ROW * len(self.bars), "".join(parts))


def beside(charts: Sequence[str], columns: int = 2) -> str:
    """Charts of the same height as one, in rows of so many."""
    rows = -(-len(charts) // columns)
    parts = []
    for place, chart in enumerate(charts):
        left, top = place % columns * _WIDTH, place // columns * _HEIGHT
        parts.append(chart.replace("<svg ", f'<svg x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" ', 1))
    size = f"0 0 {columns * _WIDTH} {rows * _HEIGHT}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">{"".join(parts)}</svg>'


def standalone(svg: str) -> str:
    """The chart as a file of its own, light or dark as the reader's system is."""
    style = f"{theme_css()}{chart_css()}svg {{ background: var(--sheet); font-family: var(--sans) }}"
    head, mark, rest = svg.partition(">")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{mark}<style>{escape(style, quote=False)}</style>{rest}\n'


def chart_css() -> str:
    """How the classes of charts look."""
    return Path(__file__).with_name("chart.css").read_text(encoding="utf-8")


def _is_near(limit: Limit, values: Sequence[float]) -> bool:
    return min(values) / _NEAR <= limit.value <= _NEAR * max(values)


def _svg(title: str, height: int, inside: str) -> str:
    name = escape(title)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {_WIDTH} {height}" role="img"'
    return f'{head} aria-label="{name}">{_text("title", 10, 20, title)}{inside}</svg>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _zone(left: float, top: float, right: float, bottom: float) -> str:
    return f'<path class="beyond" d="M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"/>'


def _grid(x: Axis, y: Axis, x_name: str) -> str:
    rows = "".join(f"M{_LEFT} {y.place(mark):.1f}H{_RIGHT}" for mark in y.marks)
    parts = [f'<path class="grid" d="{rows}"/>']
    parts += [_text("tick", _LEFT - 6, y.place(mark) + 4, y.label(mark), "end") for mark in y.marks]
    parts += [_text("tick", x.place(mark), _BOTTOM + 14, x.label(mark), "middle") for mark in x.marks]
    parts.append(_text("tick", (_LEFT + _RIGHT) / 2, _BOTTOM + 29, x_name, "middle"))
    return "".join(parts)


def _drawn(line: Line, place: int, x: Axis, y: Axis) -> str:
    at = [(x.place(one), y.place(other)) for one, other in line.points]
    if not at:
        return ""
    steps = "".join(f"H{one:.1f}V{other:.1f}" for one, other in at[1:])
    straight = "".join(f"L{one:.1f} {other:.1f}" for one, other in at[1:])
    path = f"M{at[0][0]:.1f} {at[0][1]:.1f}" + (steps if line.is_stepped else straight)
    parts = [f'<path class="line line-{place}" d="{path}"/>']
    if line.has_dots:
        parts += [f'<circle class="dot dot-{place}" cx="{one:.1f}" cy="{other:.1f}" r="2.8"/>' for one, other in at]
    return "".join(parts)


def _legend(names: Sequence[str]) -> str:
    parts, left = [], 10.0
    for place, name in enumerate(names):
        parts.append(f'<path class="line line-{place}" d="M{left:.1f} 34H{left + 16:.1f}"/>')
        parts.append(_text("tick", left + 21, 38, name))
        left += 21 + _CHARACTER * len(name) + 14
    return "".join(parts)


def _bar(bar: Bar, axis: Axis, top: float) -> str:
    end = axis.place(bar.value)
    room = int((_RIGHT - 10) / _CHARACTER - len(bar.text) - 1)
    name = bar.name if len(bar.name) <= room else bar.name[: room - 1] + "…"
    parts = [
        f"<g><title>{escape(bar.name)}</title>{_text('tick', 10, top + 11, name)}</g>",
        _text("value", _RIGHT, top + 11, bar.text, "end"),
        f'<path class="bar-ground" d="M10 {top + 16}H{_RIGHT}v6H10Z"/>',
        f'<path class="bar" d="M10 {top + 16}H{end:.1f}v6H10Z"/>',
    ]
    if bar.least is not None and bar.most is not None:
        parts.append(f'<path class="spread" d="M{axis.place(bar.least):.1f} {top + 19}H{axis.place(bar.most):.1f}"/>')
    return "".join(parts)
