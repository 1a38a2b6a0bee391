"""The workload of images runs, on a shape that a CPU has at once."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import vision_workload


def test_the_workload_tells_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "found.json"
    asked = ["tiny", "--requests", "3", "--side", "64", "--answer", "4", "--rounds", "1", "--memory", "0.05"]
    monkeypatch.setattr(sys, "argv", ["vision_workload", *asked, "--json", str(kept)])
    vision_workload.main()
    [found] = json.loads(kept.read_text())
    assert (found["images"], found["output_tokens"]) == (3, 12)
    assert found["prompt_tokens"] == 3 * (32 + 4), "64 pixels a side are two embeddings a side"
    assert 0 < found["encoder_seconds"] < found["seconds"]
    assert found["limit_seconds"] > 0
    assert "images/s" in capsys.readouterr().out
