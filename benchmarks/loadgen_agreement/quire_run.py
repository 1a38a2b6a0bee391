"""One run of `quire bench serve`, as a user starts it: a process of its own, and its --json file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.loadgen_agreement.quantities import Agreed, Answer, MissingAnswers, agreed
from benchmarks.loadgen_agreement.workload import Workload

_SAME_BODY = '{"stream_options": {"include_usage": true, "continuous_usage_stats": true}}'
"""What guidellm asks for: usage in every piece."""


def run_quire(url: str, model: str, prompts: Path, workload: Workload, folder: Path) -> Agreed:
    report = folder / "quire.json"
    command = [sys.executable, "-m", "quire.cli.main", "bench", "serve", "--url", url, "--model", model,
               "--dataset", "jsonl", "--dataset-path", str(prompts), "--concurrency", str(workload.at_once),
               "--temperature", "none", "--extra-body", _SAME_BODY, "--warmup", "0", "--metrics-every", "0",
               "--json", str(report)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"quire bench ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return read_quire(json.loads(report.read_text(encoding="utf-8")), workload)


def read_quire(report: dict[str, Any], workload: Workload) -> Agreed:
    """From its report: one load, one run."""
    (point,) = report["points"]
    (run,) = point["runs"]
    if run["completed"] != workload.requests or run["output_tokens"] != workload.requests * workload.answer:
        raise MissingAnswers(
            f"quire bench got {run['completed']} whole answers of {workload.requests}: {run['errors']}"
        )
    samples = {measure["name"]: measure["runs"][0] for measure in point["measures"]}
    pairs = zip(samples["ttft"], samples["e2e"], strict=True)
    return agreed([Answer(first, last, workload.answer) for first, last in pairs], run["seconds"])
