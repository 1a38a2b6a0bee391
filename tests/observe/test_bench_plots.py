"""Pictures of benchmarks are PNG files, whatever is missing in what they draw."""

import pytest

from quire.observe import bench_plots
from quire.observe.bench_plots import (
    LoadCurve,
    PeerBars,
    ServerTimeline,
    bars_picture,
    distribution_picture,
    load_picture,
    shares_picture,
    timeline_picture,
)

pytest.importorskip("matplotlib")
PNG = b"\x89PNG"


def test_distributions() -> None:
    assert distribution_picture("x", {"ttft": [0.1], "itl": [0.001 * n for n in range(5000)], "e2e": []}).startswith(
        PNG
    )


def test_loads() -> None:
    curve = LoadCurve("ttft", [1.0, 2.0], [0.1, 0.2], [0.3, 0.4], bound=0.25)
    assert load_picture("x", "requests a second", [curve], [1.0, 2.0], {"output": [10.0, 20.0]}).startswith(PNG)


def test_loads_at_which_nothing_was_answered() -> None:
    curve = LoadCurve("ttft", [1.0], [0.1], [0.3], bound=None)
    rates = {"output": [10.0, 0.0]}
    assert load_picture("x", "requests a second", [curve], [1.0, 2.0], rates).startswith(PNG)
    assert load_picture("x", "requests a second", [], [1.0, 2.0], rates).startswith(PNG)


def test_timelines_with_gaps() -> None:
    timeline = ServerTimeline([0.0, 1.0, 2.0], [1.0, None, 3.0], [None, None, None], [0.1, 0.2, None])
    assert timeline_picture("x", timeline).startswith(PNG)


def test_bars_of_one_and_of_many() -> None:
    cases = [
        PeerBars("a", {"quire": (2.0, 1.0, 3.0)}),
        PeerBars("b", {"quire": (2.0, 2.0, 2.0), "other": (1.0, 0.5, 4.0)}),
    ]
    assert bars_picture("x", cases).startswith(PNG)


def test_shares_of_one_op_and_of_several_even_above_all() -> None:
    assert shares_picture("x", {"linear": {"1 × 2": 0.5}}).startswith(PNG)
    assert shares_picture("x", {"linear": {"a": 0.0, "b": 1.7}, "attention": {"c": 0.93}}).startswith(PNG)


def test_ops_stand_in_two_columns_with_nothing_drawn_below_the_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, png = [], bench_plots._png
    monkeypatch.setattr(bench_plots, "_png", lambda figure: drawn.append(figure) or png(figure))
    many = {str(case): 0.5 for case in range(9)}
    shares_picture("x", {"linear": many, "attention": {"a": 0.5}, "norm": {"b": 0.5}})
    left, right = drawn[0].subfigs
    assert [axis.get_title(loc="left") for axis in left.axes] == ["linear"]
    assert [axis.get_title(loc="left") for axis in right.axes if axis.axison] == ["attention", "norm"]
    assert [len(axis.patches) for axis in right.axes if not axis.axison] == [0]
