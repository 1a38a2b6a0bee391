"""What a CPU can do at most, measured: bytes read a second and int8 operations a second, by so many threads."""

import time
from collections.abc import Callable

import torch

from quire.bench.kernels.result import Limits

FAR = 1 << 30
"""Bytes that no cache holds."""
_SECONDS = 1.0
"""How long each kernel is repeated; the best repeat counts, since a limit is what was reached at all."""
_MATRICES = (1024, 2048, 4096)
_COLUMNS = 4096


def measure_limits() -> Limits:
    """With as many threads as torch has now."""
    return Limits(read_rate(FAR), int8_rate(), "int8")


def read_rate(size: int) -> float:
    """Bytes a second over so many bytes: the better of a sum and a matrix-vector product, which do little else."""
    matrix = torch.ones(size // (4 * _COLUMNS), _COLUMNS)
    vector = torch.ones(_COLUMNS)
    return max(_best(matrix.sum, matrix.nbytes), _best(lambda: torch.mv(matrix, vector), matrix.nbytes))


def int8_rate() -> float:
    """Square int8 matmuls with int32 sums, by torch."""
    found = 0.0
    for size in _MATRICES:
        left, right = (torch.randint(-127, 127, (size, size), dtype=torch.int8) for _ in range(2))
        found = max(found, _best(lambda a=left, b=right: torch._int_mm(a, b), 2 * size**3))  # type: ignore[misc]
    return found


def _best(work: Callable[[], object], amount: float) -> float:
    """Amount a second of the fastest repeat."""
    work()
    fastest = float("inf")
    end = time.perf_counter() + _SECONDS
    while (start := time.perf_counter()) < end:
        work()
        fastest = min(fastest, time.perf_counter() - start)
    return amount / fastest
