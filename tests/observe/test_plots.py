"""Pictures: a readable PNG for one run and for several, and a clear word when the library is missing."""

import sys
from pathlib import Path

import pytest

from quire.core.errors import QuireError
from quire.observe.plots import SimulationCurves, draw_simulations


def curves(name: str) -> SimulationCurves:
    times = [0.5, 1.5, 2.5]
    return SimulationCurves(
        name=name,
        times=times,
        output_rate=[10.0, 2000.0, 500.0],
        input_rate=[300.0, 20.0, 0.0],
        running=[1.0, 5.0, 2.0],
        waiting=[0.0, 3.0, 0.0],
        kv_used=[0.1, 0.8, 0.3],
        ttft=([0.01, 0.1, 1.5], [0.2, 0.9, 1.0]),
        itl=([0.005, 0.006], [0.5, 1.0]),
        waste={"blocks of 16": 0.02, "one piece": 0.7},
    )


@pytest.mark.parametrize("names", [["fcfs"], ["fcfs", "fair", "sjf"]])
def test_a_png_is_written(tmp_path: Path, names: list[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    draw_simulations("a title", [curves(name) for name in names], path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20_000


def test_nothing_to_draw_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    empty = SimulationCurves("fcfs", [], [], [], [], [], [], ([], []), ([], []), {"blocks of 16": 0.0})
    draw_simulations("nothing", [empty], tmp_path / "plot.png")


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(QuireError, match="cannot write the plot"):
        draw_simulations("a title", [curves("fcfs")], tmp_path)


def test_a_missing_library_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(QuireError, match="plot extra"):
        draw_simulations("a title", [curves("fcfs")], tmp_path / "plot.png")
