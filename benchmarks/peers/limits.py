"""What the machine can do at most, measured: bytes read a second and int8 operations a second, by so many threads.

python -m benchmarks.peers.limits --threads 2 --bytes 98000000
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

_SECONDS = 1.0
"""How long each kernel is repeated; the best repeat counts, since a limit is what was reached at all."""
_FAR = 1 << 30
"""Bytes that no cache holds."""
_MATRICES = (1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class Limits:
    """Per second."""

    memory_bytes: float
    """Read from memory, past every cache."""
    model_bytes: float
    """Read again and again over as many bytes as the model has, which a large cache may hold."""
    int8_operations: float
    """A multiply-add is two."""

    def __str__(self) -> str:
        return (
            f"reads {self.memory_bytes / 1e9:.1f} GB/s from memory, {self.model_bytes / 1e9:.1f} GB/s over a model's "
            f"bytes; int8 {self.int8_operations / 1e12:.2f} TOP/s"
        )


def measure(threads: int, model_bytes: int) -> Limits:
    import torch

    torch.set_num_threads(threads)
    return Limits(_read_rate(_FAR), _read_rate(model_bytes), _int8_rate())


def _read_rate(size: int) -> float:
    """The better of a sum and a matrix-vector product: both read every byte once and do little else."""
    import torch

    columns = 4096
    matrix = torch.ones(size // (4 * columns), columns)
    vector = torch.ones(columns)
    return max(_best(matrix.sum, matrix.nbytes), _best(lambda: torch.mv(matrix, vector), matrix.nbytes))


def _int8_rate() -> float:
    """Square int8 products with int32 sums. The core's own kernel goes here once it has one."""
    import torch

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=98_000_000)
    asked = parser.parse_args()
    print(measure(asked.threads, asked.bytes))


if __name__ == "__main__":
    main()
