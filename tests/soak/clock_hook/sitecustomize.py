"""A hook for soaks: with this folder in PYTHONPATH, the wall clock of Python's processes is as far off as a file says.

Python imports a module of this name by itself when it starts. `SOAK_CLOCK` names the file, which holds seconds. The
monotonic clock is left alone, as a step of the system's clock leaves it.
"""

import os
import time
from pathlib import Path

CLOCK = "SOAK_CLOCK"


def _shift() -> float:
    try:
        return float(Path(os.environ[CLOCK]).read_text(encoding="ascii"))
    except (OSError, ValueError):  # it is just being written, or not yet there
        return 0.0


def _seconds(_real=time.time):
    return _real() + _shift()


def _nanoseconds(_real=time.time_ns):
    return _real() + int(_shift() * 1e9)


if CLOCK in os.environ:
    time.time = _seconds
    time.time_ns = _nanoseconds
