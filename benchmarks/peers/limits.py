"""What the machine can do at most, measured: bytes read a second and int8 operations a second, by so many threads.

python -m benchmarks.peers.limits --threads 2 --bytes 98000000
"""

import argparse
from dataclasses import dataclass


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

    from quire.bench.kernels.cpu_limits import FAR, int8_rate, read_rate

    torch.set_num_threads(threads)
    return Limits(read_rate(FAR), read_rate(model_bytes), int8_rate())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=98_000_000)
    asked = parser.parse_args()
    print(measure(asked.threads, asked.bytes))


if __name__ == "__main__":
    main()
