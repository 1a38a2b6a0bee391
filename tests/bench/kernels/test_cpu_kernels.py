"""Kernel benchmarks of a CPU compute the right thing on the shapes they say."""

import pytest
import torch

from quire.bench.kernels import cpu_attention, cpu_linear
from quire.bench.kernels.attention_cases import AttentionCase, make_inputs
from quire.bench.kernels.result import KernelResult, Limits
from quire.ops.cpu.machine import set_machine
from quire.ops.functional import paged_attention
from tests.ops.cpu.machines import machine, needs_core


@needs_core
def test_results_of_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    set_machine(machine("", 1))
    for name, value in (("SHAPES", ((64, 32),)), ("ROWS", (1, 40)), ("_BEYOND_THE_CACHE", 5000)):
        monkeypatch.setattr(cpu_linear, name, value)
    found = list(cpu_linear.results(0.0))
    assert [result.case for result in found] == ["1 × 32 → 64", "40 × 32 → 64"] * 3
    q4 = found[4]
    assert q4.name == "linear Q4_0: 1 × 32 → 64"
    assert (q4.bytes, q4.operations) == (64 * 18 + 4 * (32 + 64), 2 * 32 * 64)
    assert all(len(result.seconds) >= 5 and min(result.seconds) > 0 and result.beside for result in found)


@needs_core
def test_results_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    set_machine(machine("", 1))
    monkeypatch.setattr(cpu_attention, "CASES", (AttentionCase(2, 40, 1, 4, 2, 16), AttentionCase(1, 20, 20, 4, 2, 16)))
    found = list(cpu_attention.results(0.0))
    assert [result.case.split(",")[0] for result in found] == ["decode", "prompt 20"]


def test_attention_counts_what_a_token_sees() -> None:
    case = AttentionCase(1, 3, 2, heads=1, kv_heads=1, head_dim=8)
    # the two new tokens see two and three positions, each with two dot products of eight multiply-adds
    assert case.operations() == (2 + 3) * 2 * 8 * 2
    assert case.bytes(2) == 2 * (2 * 3 * 8 + 2 * 2 * 8)


def test_a_shared_prefix_is_read_once() -> None:
    case = AttentionCase(3, 40, 1, heads=1, kv_heads=1, head_dim=8, shared_prefix=32)
    assert case.bytes(2) == 2 * (2 * (32 + 3 * 8) * 8 + 2 * 3 * 8)
    tables = make_inputs(case, torch.float32, "cpu").tables
    assert (tables[:, :2] == tables[0, :2]).all()
    assert len(tables[:, 2].unique()) == 3
    assert str(case).startswith("decode with a shared prefix of 32, 3 × 40")


def test_inputs_can_be_attended() -> None:
    case = AttentionCase(3, 33, 2, 4, 2, 8)
    given = make_inputs(case, torch.float32, "cpu")
    found = paged_attention(given.query, given.keys, given.values, given.tables, given.starts, given.lengths, scale=1.0)
    assert found.shape == (6, 4, 8)
    assert found.isfinite().all()


def test_the_floor_is_the_slower_of_moving_and_computing() -> None:
    limits = Limits(memory_bytes=100.0, operations=1000.0, numbers="int8")
    assert KernelResult("x", "y", (1.0,), bytes=50, operations=10).floor(limits) == 0.5
    assert KernelResult("x", "y", (1.0,), bytes=50, operations=2000).floor(limits) == 2.0
