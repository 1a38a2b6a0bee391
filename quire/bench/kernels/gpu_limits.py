"""What a GPU can do at most, measured: bytes read a second and bfloat16 operations a second.

Of both, the best of several ways and sizes: a limit is what was reached at all.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from quire.bench.kernels.gpu_timing import time_calls
from quire.bench.kernels.result import Limits
from quire.ops.triton.read_memory import read_memory

SIZES = (1 << 30, 2 << 30)
"""Bytes that no cache holds."""
BLOCKS = (2048, 4096, 8192)
PROGRAMS = (2, 4, 8)
"""For each multiprocessor."""
SIDES = (4096, 8192, 16384)
"""Of square matrices."""


def measure_limits() -> Limits:
    return Limits(max(_bandwidths()), max(_matmuls()), "bfloat16")


def _bandwidths() -> Iterator[float]:
    """Bytes read a second, and nothing written: kernels read weights and caches, and write next to nothing."""
    device = torch.device("cuda", torch.cuda.current_device())
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    for size in SIZES:
        values = torch.ones(size // 4, dtype=torch.int32, device=device)
        for block in BLOCKS:
            for each in PROGRAMS:
                yield size / _fastest(partial(read_memory, values, each * multiprocessors, block))


def _matmuls() -> Iterator[float]:
    """Operations a second of cuBLAS."""
    for side in SIDES:
        left, right = (torch.randn(side, side, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        yield 2 * side**3 / _fastest(partial(torch.matmul, left, right))


def _fastest(call: Callable[[], object]) -> float:
    return min(time_calls([call]))
