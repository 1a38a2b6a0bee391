"""Cases of kernels that work on rows can be called, and say what they move."""

from collections.abc import Iterator

import pytest
import torch

from quire.bench.kernels import gpu_rows
from quire.bench.kernels.gpu_rows import RowCase, RowShape
from quire.bench.kernels.registry import BENCHMARKS, benchmarks

SHAPE = RowShape(hidden=8, intermediate=12, heads=4, kv_heads=2, head_dim=4, vocabulary=70)
ROWS = 3


def cases() -> Iterator[RowCase]:
    yield from gpu_rows.norm_cases(SHAPE, ROWS, "cpu")
    yield gpu_rows.heads_case(SHAPE, ROWS, "cpu")
    yield gpu_rows.activation_case(SHAPE, ROWS, "cpu")
    yield from gpu_rows.sampling_cases(SHAPE, ROWS, "cpu")


def test_what_each_must_move() -> None:
    moved = {case.name.split(",")[0]: case.bytes for case in cases()}
    row = 2 * ROWS * SHAPE.hidden
    logits = ROWS * SHAPE.vocabulary
    assert moved == {
        "rms_norm": 2 * row,
        "add_rms_norm": 4 * row,
        "layer_norm": 2 * row,
        "add_layer_norm": 4 * row,
        "prepare_heads": 2 * (2 * ROWS * 8 * SHAPE.head_dim) + 2 * (4 * ROWS * 2),
        "gated_activation": 2 * ROWS * SHAPE.intermediate * 3,
        "argmax": 2 * logits,
        "adjust_logits by masks and penalties": 2 * logits * (1 + 1 / 16 + 2 + 2),
        "mask_logits": 2 * logits * (1 + 1 / 16 + 1),
        "token_logprobs of 5": 2 * logits,
        "sample_tokens by temperature": 4 * logits,
        "sample_tokens by top-k 50": 4 * logits,
        "sample_tokens by top-p 0.9": 4 * logits,
    }


def test_every_call_runs_and_reads_memory_of_its_own() -> None:
    for case in cases():
        assert len(case.calls) == gpu_rows.MOST_COPIES
        for call in case.calls:
            call()


def test_copies_fill_the_cache_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_rows, "BEYOND_THE_CACHE", 1000)
    assert len(gpu_rows._copies(torch.zeros(100, dtype=torch.float32))) == 3
    assert len(gpu_rows._copies(torch.zeros(1000, dtype=torch.float32))) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["norm", "heads", "activation", "sampling"])
def test_kernels_of_rows_are_timed(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_rows, "LLAMA_8B", SHAPE)
    found = list(benchmarks("cuda", [op])[op](0.0))
    assert found
    assert all(result.op == op and min(result.seconds) > 0 for result in found)


def test_every_benchmark_can_be_found() -> None:
    for device, known in BENCHMARKS.items():
        assert all(callable(run) for run in benchmarks(device, list(known)).values())
