"""The real default model on a GPU against the CPU's float32, token by token."""

import pytest

from benchmarks.gpu_parity import greedy_tokens

pytestmark = pytest.mark.gpu


def test_the_same_greedy_tokens_as_the_cpu_in_float32() -> None:
    assert greedy_tokens(on_gpu=True, dtype="float32") == greedy_tokens(on_gpu=False, dtype="float32")
