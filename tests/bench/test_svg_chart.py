"""Charts: axes fit what is drawn, lines lie inside, limits are seen, and text from outside stays text."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.axis import linear_axis, log_axis
from quire.bench.svg_chart import Bar, BarChart, Limit, Line, LineChart, standalone

SVG = "{http://www.w3.org/2000/svg}"
LEFT, RIGHT, TOP, BOTTOM = 46, 350, 48, 196
NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


@given(st.lists(NUMBERS, min_size=1), st.booleans())
def test_an_axis_holds_its_values_and_little_more(values: list[float], from_zero: bool) -> None:
    axis = linear_axis(values, 0.0, 100.0, from_zero=from_zero)
    low, high = min(values), max(values)
    slack = 1e-6 * max(abs(low), abs(high), 1e-3)
    assert axis.low <= low + slack
    assert axis.high >= high - slack
    assert 2 <= len(axis.marks) <= 8
    assert axis.marks == tuple(sorted(set(axis.marks)))
    assert not from_zero or axis.low <= 0 <= max(axis.high, 0)
    assert [axis.place(axis.low), axis.place(axis.high)] == [0.0, 100.0]


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([0.0, 93.0], (0, 25, 50, 75, 100)),
        ([0.0, 250.0], (0, 50, 100, 150, 200, 250)),
        ([12.0, 14.0], (12, 12.5, 13, 13.5, 14)),
        ([0.0], (-1, -0.5, 0, 0.5, 1)),
        ([5.0, 5.0000001], (4.5, 5, 5.5)),
    ],
)
def test_marks_are_round(values: list[float], marks: tuple[float, ...]) -> None:
    assert linear_axis(values, 0, 1, from_zero=False).marks == marks


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, unique=True))
def test_a_logarithmic_axis_ends_at_its_values(values: list[float]) -> None:
    axis = log_axis(values, 0.0, 100.0)
    assert axis.place(min(values)) == pytest.approx(0)
    assert axis.place(max(values)) == pytest.approx(100)
    assert all(axis.low <= mark <= axis.high for mark in axis.marks)
    assert len(axis.marks) <= 11


def drawn(chart: LineChart | BarChart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.svg())


def paths(svg: ElementTree.Element, kind: str) -> list[str]:
    return [each.get("d", "") for each in svg.iter(f"{SVG}path") if kind in (each.get("class") or "").split()]


def texts(svg: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in svg.iter(f"{SVG}text")]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=20), st.floats(0, 1e7))
def test_lines_stay_inside_whatever_the_limit(points: list[tuple[float, float]], bound: float) -> None:
    limit = Limit(bound, "limit")
    svg = drawn(LineChart("t", "x", [Line("a", sorted(points), has_dots=True)], limit, limit, may_be_log=True))
    for circle in svg.iter(f"{SVG}circle"):
        assert LEFT - 0.1 <= float(circle.get("cx", "")) <= RIGHT + 0.1
        assert TOP - 0.1 <= float(circle.get("cy", "")) <= BOTTOM + 0.1
    assert len(list(svg.iter(f"{SVG}circle"))) == len(points)


def test_a_line_goes_through_its_points() -> None:
    line = Line("a", [(0.0, 0.0), (1.0, 50.0), (2.0, 100.0)])
    assert paths(drawn(LineChart("t", "x", [line])), "line-0") == ["M46.0 196.0L198.0 122.0L350.0 48.0"]
    stepped = Line("a", [(0.0, 0.0), (2.0, 100.0)], is_stepped=True)
    assert paths(drawn(LineChart("t", "x", [stepped])), "line-0") == ["M46.0 196.0H350.0V48.0"]


def test_what_is_beyond_a_limit_is_marked() -> None:
    line = Line("a", [(0.0, 0.0), (100.0, 100.0)])
    assert paths(drawn(LineChart("t", "x", [line], x_limit=Limit(50, "m"))), "beyond") == [
        "M198.0 48.0H350.0V196.0H198.0Z"
    ]
    above, below = (
        drawn(LineChart("t", "x", [line], y_limit=Limit(50, "m"), lower_is_bad=is_bad)) for is_bad in (False, True)
    )
    assert paths(above, "beyond") == ["M46.0 48.0H350.0V122.0H46.0Z"]
    assert paths(below, "beyond") == ["M46.0 122.0H350.0V196.0H46.0Z"]
    assert paths(above, "limit") == ["M46 122.0H350"]


@pytest.mark.parametrize(("bound", "highest"), [(250, "250"), (5000, "100")])
def test_an_axis_is_for_the_data_and_not_for_a_limit_far_away(bound: float, highest: str) -> None:
    line = Line("a", [(0.0, 0.0), (10.0, 100.0)])
    svg = drawn(LineChart("t", "x", [line], y_limit=Limit(bound, "so much")))
    marks = [text for text in texts(svg) if re.fullmatch(r"[\d,]+", text)]
    assert max(float(mark) for mark in marks) == float(highest)
    assert "so much" in texts(svg)


def test_a_chart_without_points_says_so() -> None:
    assert "Nothing was measured." in texts(drawn(LineChart("t", "x", [Line("a", [])], x_limit=Limit(1, "m"))))


def test_bars_are_as_long_as_their_values() -> None:
    bars = [Bar("one", 1.0, "100 %"), Bar("half", 0.5, "50 %", 0.25, 0.75)]
    svg = drawn(BarChart("t", bars, Limit(1.0, "limit")))
    assert [path.split("H")[1].split("v")[0] for path in paths(svg, "bar")] == ["350.0", "180.0"]
    assert paths(svg, "spread") == ["M95.0 83H265.0"]
    assert {"one", "half", "50 %"} <= set(texts(svg))
    assert len(paths(svg, "limit")) == len(bars)
    drawn(BarChart("nothing", []))


def test_a_long_name_leaves_room_for_the_value() -> None:
    svg = drawn(BarChart("t", [Bar("n" * 200, 1.0, "100 %")]))
    shown = next(text for text in texts(svg) if text.startswith("nn"))
    assert 30 < len(shown) < 55
    assert shown.endswith("…")
    assert svg.findtext(f".//{SVG}title") == "n" * 200


def test_text_stays_text() -> None:
    nasty = "<script>&\"'"
    line = LineChart(nasty, nasty, [Line(nasty, [(1, 1)]), Line(nasty, [(2, 2)])], Limit(1, nasty), Limit(1, nasty))
    for chart in (line, BarChart(nasty, [Bar(nasty, 1.0, nasty)], Limit(1.0, nasty))):
        svg = drawn(chart)
        assert not list(svg.iter(f"{SVG}script"))
        assert texts(svg).count(nasty) >= 3


def test_a_chart_is_a_file_of_its_own() -> None:
    root = ElementTree.fromstring(standalone(BarChart("t", [Bar("a", 1.0, "1")]).svg()))
    style = root.find(f"{SVG}style")
    assert style is not None
    assert "light-dark(" in (style.text or "")
    assert ".chart .bar" in (style.text or "")
