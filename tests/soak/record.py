"""The record of soaks: a file of JSON lines to which every run adds its own, so that hours may come from many runs."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Record:
    """One run's way to the file. Every line says what it is (`type`), when (`at`, seconds of the run) and where."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._began = time.monotonic()
        self.scene = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def add(self, kind: str, **fields: Any) -> None:
        line = {"type": kind, "at": round(self.seconds, 1), "scene": self.scene, **fields}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_record(path: Path) -> Iterator[dict[str, Any]]:
    """All lines of all runs; a line that was cut off when its run was killed is left out."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def runs_of(path: Path) -> list[list[dict[str, Any]]]:
    """The lines of each run, which begin with its own."""
    runs: list[list[dict[str, Any]]] = []
    for line in read_record(path):
        if line["type"] == "run" or not runs:
            runs.append([])
        runs[-1].append(line)
    return runs
