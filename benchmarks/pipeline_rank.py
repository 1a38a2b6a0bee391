"""A rank of `benchmarks.pipeline_timeline`: as any other, and it writes down when it computes and when it waits."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "QUIRE_TIMELINE_FOLDER"
"""Where ranks write what they did."""
Spans = list[tuple[str, int, float, float]]
"""What, of which step, from when to when: seconds of the clock that all processes of a machine share."""


def record(name: str) -> Path:
    """From now on this process notes its steps, and what they wait for, in the file that is returned: line by line, as
    a rank ends without notice."""
    from quire.core.plan import StepPlan
    from quire.parallel.pipeline import Pipeline
    from quire.worker.stage_worker import StageWorker
    from quire.worker.worker import Worker

    path = Path(os.environ[FOLDER]) / f"{name}.jsonl"
    file = path.open("w", buffering=1)
    step = 0

    def timed(owner: Any, method: str, what: str) -> None:
        run: Callable[..., Any] = getattr(owner, method)

        def timing(self: Any, *given: Any) -> Any:
            nonlocal step
            if isinstance(given[0], StepPlan):
                step = given[0].step
            begun = time.monotonic()
            result = run(self, *given)
            file.write(json.dumps((what, step, begun, time.monotonic())) + "\n")
            return result

        setattr(owner, method, timing)

    for worker in (StageWorker, Worker):
        timed(worker, "start", "step")
    for method in ("receive", "take_tokens"):
        timed(Pipeline, method, "wait")
    return path


def read(path: Path) -> Spans:
    """What was noted there."""
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    record(f"rank-{os.getpid()}")
    from quire.executor.rank_child import main

    code = main()
    sys.stderr.flush()
    os._exit(code)
