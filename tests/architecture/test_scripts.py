"""What scripts/test runs, and what it says where it cannot."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
STUB = 'root="$PWD"\nvenv_python=python\ndie() { printf "%s\\n" "$*" >&2; exit 1; }\nensure_venv() { :; }\n'
"""In place of what prepares the environment."""


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A copy of the script, with programs of its own in `folder` first on PATH."""
    shutil.copy(SCRIPTS / "test", folder / "test")
    (folder / "_venv.sh").write_text(STUB)
    return subprocess.run(
        [folder / "test", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PATH": f"{folder}:{os.defpath}"},
    )


def program(folder: Path, name: str) -> None:
    """Says how it was called."""
    (folder / name).write_text(f'#!/bin/sh\nprintf "[%s]" "{name}" "$@"\necho " $PYTORCH_NO_CUDA_MEMORY_CACHING"\n')
    (folder / name).chmod(0o755)


def test_kernels_run_under_the_sanitizer_where_there_is_one(tmp_path: Path) -> None:
    program(tmp_path, "compute-sanitizer")
    found = run(tmp_path, "--gpu", "--sanitize")
    assert found.returncode == 0, found.stderr
    assert "[--tool][memcheck]" in found.stdout
    assert "[--error-exitcode][1][python][-m][pytest][-m][sanitize][tests/ops/triton] 1" in found.stdout


@pytest.mark.skipif(Path("/usr/local/cuda/bin/compute-sanitizer").exists(), reason="it is installed here")
def test_without_the_sanitizer_it_says_so(tmp_path: Path) -> None:
    program(tmp_path, "python")
    found = run(tmp_path, "--gpu", "--sanitize")
    assert found.returncode == 1
    assert "--sanitize needs compute-sanitizer" in found.stderr
    assert "[python]" not in found.stdout


def test_without_a_gpu_there_is_nothing_to_watch(tmp_path: Path) -> None:
    found = run(tmp_path, "--sanitize")
    assert (found.returncode, found.stdout) == (1, "")
    assert "give --gpu as well" in found.stderr


def test_without_options_gpu_and_slow_tests_are_left_out(tmp_path: Path) -> None:
    program(tmp_path, "python")
    assert "[-m][not slow and not gpu][-x] " in run(tmp_path, "-x").stdout
