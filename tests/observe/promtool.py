"""Prometheus' own tools, where they are installed; Debian has both in the package `prometheus`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Where `promtool` or `prometheus` is; skips the test where there is none. PROMTOOL and PROMETHEUS may say it."""
    found = os.environ.get(name.upper()) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on PATH; Debian: apt install prometheus")
    return found


def promtool_complaints(text: str) -> str:
    """What the linter says of metrics, one complaint a line."""
    command = [program("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr or f"exit code {done.returncode}" * (done.returncode != 0)


def promtool(*words: str, folder: Path) -> str:
    """What it prints; fails the test where it does."""
    done = subprocess.run(
        [program("promtool"), *words], capture_output=True, text=True, timeout=60, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
