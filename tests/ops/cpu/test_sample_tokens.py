"""The native draw against the reference: the same noise, the same filters, on every variant."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.ops.cpu import machine as process
from quire.ops.cpu.sample_tokens import sample_tokens
from quire.ops.reference.sample_tokens import sample_tokens as reference
from tests.ops.cpu.machines import every_variant, machine, needs_core

pytestmark = needs_core


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch):
    """Has ops of this process run on a variant."""
    return lambda variant, threads=1: monkeypatch.setattr(process._Process, "machine", machine(variant, threads))


def settings(rows: int, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    seeds = torch.randint(-(2**62), 2**62, (rows,), generator=generator)
    return seeds, torch.arange(rows) % 3, torch.randint(0, 100_000, (rows,), generator=generator)


def logits_of(rows: int, vocabulary: int, seed: int, spread: float = 4.0) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread


@every_variant
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("vocabulary", [1, 5, 64, 67, 1000, 49_152])
def test_the_same_tokens_as_the_reference(variant: str, threads: int, vocabulary: int, on) -> None:
    on(variant, threads)
    rows = 24 if vocabulary < 10_000 else 6
    logits = logits_of(rows, vocabulary, vocabulary)
    temperature = torch.tensor([0.0, 0.3, 1.0, 2.5] * 6)[:rows]
    seeds = settings(rows, 1)
    for filters in (
        (None, None, None),
        (torch.tensor([0, 1, 5, 40] * 6)[:rows], None, None),
        (None, torch.tensor([1.0, 0.9, 0.5, 0.01] * 6)[:rows], None),
        (None, None, torch.tensor([0.0, 0.05, 0.5, 1.0] * 6)[:rows]),
        (torch.full((rows,), 50), torch.full((rows,), 0.8), torch.full((rows,), 0.01)),
    ):
        found, _ = sample_tokens(logits, temperature, *seeds, *filters)
        wanted, _ = reference(logits, temperature, *seeds, *filters)
        assert (found == wanted).float().mean() >= 0.95, filters  # a score may tie with another within its last bit


@every_variant
def test_what_is_hidden_is_never_drawn(variant: str, on) -> None:
    on(variant)
    logits = logits_of(64, 300, 2)
    logits[:, ::2] = -math.inf
    tokens, _ = sample_tokens(logits, torch.full((64,), 5.0), *settings(64, 3))
    assert bool((tokens % 2 == 1).all())


@every_variant
@given(
    vocabulary=st.integers(2, 200),
    top_k=st.integers(0, 30),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**31),
)
def test_equal_logits_share_their_fate(
    variant: str, vocabulary: int, top_k: int, top_p: float, min_p: float, seed: int
):
    """Few distinct values, so that thresholds fall on ties."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(0, 4, (4, vocabulary), generator=generator).float()
    filters = (torch.full((4,), top_k), torch.full((4,), top_p), torch.full((4,), min_p))
    before = process._Process.machine
    process._Process.machine = machine(variant)
    try:
        found, _ = sample_tokens(logits, torch.ones(4), *settings(4, seed), *filters)
    finally:
        process._Process.machine = before
    assert torch.equal(found, reference(logits, torch.ones(4), *settings(4, seed), *filters)[0])


@every_variant
def test_frequencies_follow_the_softmax(variant: str, on) -> None:
    """Noise of its own for every position: 20,000 draws of one distribution."""
    on(variant)
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -6.0])
    count = 20_000
    position = torch.arange(count)
    seed, stream = torch.full((count,), 7), torch.zeros(count, dtype=torch.int64)
    tokens, _ = sample_tokens(logits.expand(count, -1).contiguous(), torch.ones(count), seed, stream, position)
    expected = torch.softmax(logits, 0) * count
    found = torch.bincount(tokens, minlength=5).float()
    chi_square = float(((found - expected) ** 2 / expected).sum())
    assert chi_square < 23.5  # one in ten thousand of a fair draw with four degrees of freedom
