"""What a GPU can do at most, measured: bytes read a second and bfloat16 operations a second."""

import torch

from quire.bench.kernels.gpu_timing import time_calls
from quire.bench.kernels.result import Limits

_FAR = 1 << 31
"""Bytes that no cache holds."""
_SIDE = 8192


def measure_limits() -> Limits:
    """The best of some repeats, since a limit is what was reached at all."""
    source, target = (torch.ones(_FAR // 4, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    copied = 2 * source.nbytes / min(time_calls([lambda: target.copy_(source)]))  # read once and written once
    left, right = (torch.randn(_SIDE, _SIDE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    operations = 2 * _SIDE**3 / min(time_calls([lambda: left @ right]))
    return Limits(copied, operations, "bfloat16")
