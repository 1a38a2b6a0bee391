"""StepProfiler: every recording that was begun is told of once, with the steps it has."""

import json
from pathlib import Path

from quire.serving.messages import Profiled
from quire.serving.profiler import StepProfiler


def step(profiler: StepProfiler) -> Profiled | None:
    with profiler:
        pass
    return profiler.finished()


def test_ends_with_its_last_step(tmp_path: Path) -> None:
    profiler, path = StepProfiler(), tmp_path / "trace.json"
    assert step(profiler) is None
    profiler.begin(2, str(path))
    assert step(profiler) is None
    assert step(profiler) == Profiled(str(path), 2)
    assert "traceEvents" in json.loads(path.read_text())
    profiler.end(str(path))  # came too late
    assert profiler.finished() is None
    assert step(profiler) is None


def test_ends_early_with_what_there_is(tmp_path: Path) -> None:
    profiler, path = StepProfiler(), tmp_path / "trace.json"
    profiler.begin(9, str(path))
    step(profiler)
    profiler.end(str(tmp_path / "another.json"))
    assert profiler.finished() is None
    profiler.end(str(path))
    assert profiler.finished() == Profiled(str(path), 1)
    assert path.exists()


def test_without_a_step_there_is_no_file(tmp_path: Path) -> None:
    profiler, path = StepProfiler(), tmp_path / "trace.json"
    profiler.begin(9, str(path))
    profiler.end(str(path))
    assert profiler.finished() == Profiled(str(path), 0)
    assert not path.exists()


def test_the_next_one_ends_the_last(tmp_path: Path) -> None:
    profiler, first, second = StepProfiler(), str(tmp_path / "1.json"), str(tmp_path / "2.json")
    profiler.begin(9, first)
    profiler.begin(1, second)
    assert profiler.finished() == Profiled(first, 0)
    assert step(profiler) == Profiled(second, 1)


def test_a_file_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    profiler, path = StepProfiler(), str(tmp_path / "none" / "trace.json")
    profiler.begin(1, path)
    done = step(profiler)
    assert done is not None
    assert done.problem is not None
