"""One run of guidellm, an independent load generator, under the Python that has it; and its JSON report."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.loadgen_agreement.quantities import Agreed, Answer, MissingAnswers, agreed
from benchmarks.loadgen_agreement.workload import Workload

INSTALL = "python -m venv build/loadgen_venv && build/loadgen_venv/bin/pip install guidellm"


def version(python: Path) -> str:
    """Raises SystemExit with what to do where it is not installed."""
    try:
        asked = [str(python), "-m", "guidellm", "--version"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SystemExit(f"--guidellm-python is {python}, which cannot be run ({error.strerror}): {INSTALL}") from None
    if done.returncode:
        raise SystemExit(f"{python} has no guidellm, which this compares with: {INSTALL}")
    return done.stdout.strip().rpartition(" ")[2]


def run_guidellm(python: Path, url: str, model: str, prompts: Path, workload: Workload, folder: Path) -> Agreed:
    report = folder / "guidellm.json"
    command = [
        str(python), "-m", "guidellm", "run",
        "--backend", f"kind=openai_http,target={url},model={model},request_format=/v1/completions",
        "--profile", f"kind=concurrent,streams={workload.at_once}",
        "--constraint", f"kind=max_requests,count={workload.requests}",
        "--data", f"kind=json_file,path={prompts}",
        "--output", f"kind=json,path={report}",
        "--disable-console",
    ]  # fmt: skip
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=offline)
    if done.returncode:
        raise RuntimeError(f"guidellm ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return read_guidellm(json.loads(report.read_text(encoding="utf-8")), workload)


def read_guidellm(report: dict[str, Any], workload: Workload) -> Agreed:
    """From the moments of its requests."""
    (benchmark,) = report["benchmarks"]
    done = benchmark["requests"]["successful"]
    if len(done) != workload.requests or any(each["output_tokens"] != workload.answer for each in done):
        raise MissingAnswers(
            f"guidellm got {len(done)} whole answers of {workload.requests}, of "
            f"{sorted({each['output_tokens'] for each in done})} tokens; {len(benchmark['requests']['errored'])} failed"
        )
    moments = [each["info"]["timings"] for each in done]
    answers = [
        Answer(
            each["first_token_iteration"] - each["request_start"],
            each["last_token_iteration"] - each["request_start"],
            workload.answer,
        )
        for each in moments
    ]
    seconds = max(each["request_end"] for each in moments) - min(each["request_start"] for each in moments)
    return agreed(answers, seconds)
