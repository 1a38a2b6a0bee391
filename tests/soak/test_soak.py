"""The soak itself: a short one in which an engine and a front are killed, and a longer one with every scene."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.__main__ import main
from tests.soak.record import read_record, runs_of
from tests.soak.summary import summary

ROOT = Path(__file__).parents[2]


def soak(record: Path, *options: str, timeout: float) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.soak", "--record", str(record), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def told(ended: "subprocess.CompletedProcess[str]", record: Path) -> str:
    broken = [line for line in read_record(record) if line["type"] == "violation"] if record.exists() else []
    return "\n".join([ended.stdout[-3000:], ended.stderr[-3000:], *map(str, broken)])


def test_a_short_soak(tmp_path: Path) -> None:
    record, picture = tmp_path / "soak.jsonl", tmp_path / "soak.svg"
    ended = soak(record, "--scenes", "short", "--minutes", "0.07", "--gap", "1", "--pause", "0.05", "--seed", "8",
                 "--plot", str(picture), timeout=300)  # fmt: skip
    assert ended.returncode == 0, told(ended, record)
    [lines] = runs_of(record)
    struck = [line["name"] for line in lines if line["type"] == "fault"]
    assert "engine killed" in struck
    outcomes = [line["outcomes"] for line in lines if line["type"] == "sample"]
    assert sum(each.get("whole", 0) for each in outcomes) >= 5
    assert "No promise was broken." in ended.stdout
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.slow
def test_every_scene_for_five_minutes(tmp_path: Path) -> None:
    record = tmp_path / "soak.jsonl"
    ended = soak(record, "--minutes", "5", "--gap", "8", "--seed", "11", timeout=1800)
    assert ended.returncode == 0, told(ended, record)


def test_runs_are_summed_and_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    record = tmp_path / "soak.jsonl"
    run = {"type": "run", "at": 0, "scene": "", "seed": 1, "machine": "one"}
    sample = {"type": "sample", "at": 60, "scene": "fronts", "outcomes": {"whole": 5, "left": 1}, "processes": {}}
    fault = {"type": "fault", "at": 50, "scene": "fronts", "name": "engine killed", "struck": "", "well_after": 2.0}
    broken = {"type": "violation", "at": 55, "scene": "fronts", "what": "wrong", "detail": "another text"}
    lines = [run, sample, fault, run | {"seed": 2}, sample, fault | {"well_after": 4.0}, broken]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type": "sam')
    found = summary(runs_of(record))
    assert "2 minutes in 2 runs (seeds 1, 2) on one." in found
    assert "| fronts | 12 | 10 | 2 | 0 |" in found
    assert "| engine killed | 2 | 3.0 s | 4.0 s |" in found
    assert "Promises that were broken: wrong (1)." in found


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--scenes", "fronts,sea"), "'sea' is no scene; there are fronts, router, ranks, media, short"),
        (("--minutes", "-1"), "--minutes must not be negative"),
        (("--minutes", "0"), "is not there; with --minutes above 0 a run begins it"),
    ],
)
def test_what_cannot_be_played_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    why: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["soak", "--record", str(tmp_path / "none.jsonl"), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
