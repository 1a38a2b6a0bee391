"""What a GPU reaches at most is above what its kernels are held against, and below what no card has."""

import pytest

pytestmark = pytest.mark.gpu


def test_reading_is_at_least_as_fast_as_copying() -> None:
    import torch

    from quire.bench.kernels.gpu_limits import measure_limits
    from quire.bench.kernels.gpu_timing import time_calls

    source, target = (torch.ones(1 << 29, dtype=torch.uint8, device="cuda") for _ in range(2))
    copied = 2 * source.nbytes / min(time_calls([lambda: target.copy_(source)]))
    limits = measure_limits()
    assert limits.memory_bytes > 0.95 * copied
    assert 1e12 < limits.operations < 1e17
    assert limits.numbers == "bfloat16"
