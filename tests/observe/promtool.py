"""What Prometheus' own linter says of metrics; Debian has it in the package `prometheus`."""

import os
import shutil
import subprocess

import pytest


def promtool_complaints(text: str) -> str:
    """One a line; skips the test where there is no promtool, whose place PROMTOOL may say."""
    promtool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on PATH; Debian: apt install prometheus")
    command = [promtool, "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr or f"exit code {done.returncode}" * (done.returncode != 0)
