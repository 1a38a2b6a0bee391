"""A peer in a process of its own, under its own Python: it loads once, then generates whenever a line asks it to.

Only the standard library here: the peers' environments need not have ours.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from the start until the first token and until the last."""

    first: float
    total: float


Generate = Callable[[list[list[int]], int], Timing]
"""Greedy answers of exactly so many tokens to each prompt."""


def answer_lines(load: Callable[[], Generate]) -> None:
    """The child's side: one JSON line in, one out, until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    generate = load()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        timing = generate(asked["prompts"], asked["output"])
        print(json.dumps({"first": timing.first, "total": timing.total}), file=answers, flush=True)


class Child:
    """The parent's side."""

    def __init__(self, python: Path, module: str, options: Sequence[str], threads: int, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(python), "-m", module, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
                text=True,
            )
        self._read()

    @property
    def pid(self) -> int:
        return self._process.pid

    def generate(self, prompts: list[list[int]], output: int) -> Timing:
        assert self._process.stdin is not None
        print(json.dumps({"prompts": prompts, "output": output}), file=self._process.stdin, flush=True)
        told = self._read()
        return Timing(told["first"], told["total"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the peer ended with {self._process.wait()}; its log {self._log} ends with:\n{self._tail()}"
            )
        told: dict[str, float] = json.loads(line)
        return told

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
