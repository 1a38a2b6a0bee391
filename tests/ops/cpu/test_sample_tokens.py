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
@pytest.mark.parametrize(("vocabulary", "levels"), [(63, 2), (65, 40), (65, 3000), (4097, 40), (4097, 3000)])
def test_filters_keep_what_the_reference_keeps(variant: str, vocabulary: int, levels: int, on) -> None:
    """Of peaked rows and flat ones, with many ties and few, the same token is drawn every time: were the bound another,
    one that is drawn often would be lost, or one that must not come would be among thousands of draws."""
    on(variant)
    rows = 12
    generator = torch.Generator().manual_seed(vocabulary + levels)
    # a grid that float32 and the division by 1 leave exact
    grid = torch.randint(0, levels, (rows, vocabulary), generator=generator).float() * (32.0 / levels)
    logits = (grid * torch.tensor([0.125, 0.5, 1.0, 4.0]).repeat(3)[:, None]).contiguous()
    logits[::5, ::3] = -math.inf
    temperature = torch.ones(rows)
    top_p = torch.tensor([0.1, 0.5, 0.9, 0.95, 0.999, 1.0]).repeat(2)
    top_k = torch.tensor([0, 1, 7, 50, 800, vocabulary - 1, vocabulary, 2 * vocabulary]).repeat(2)[:rows]
    min_p = torch.tensor([0.0, 0.001, 0.2]).repeat(4)
    for number, filters in enumerate(
        ((None, top_p, None), (top_k, None, None), (top_k, top_p, None), (None, top_p, min_p), (top_k, top_p, min_p))
    ):
        for turn in range(3):
            seeds = settings(rows, 10 * number + turn)
            found, _ = sample_tokens(logits, temperature, *seeds, *filters)
            wanted, _ = reference(logits, temperature, *seeds, *filters)
            assert torch.equal(found, wanted), (number, turn)


@every_variant
def test_a_row_without_noise_takes_its_likeliest_whatever_filters_say(variant: str, on) -> None:
    on(variant)
    logits = logits_of(5, 130, 8)
    filters = (torch.full((5,), 3), torch.full((5,), 0.4), torch.full((5,), 0.2))
    tokens, _ = sample_tokens(logits, torch.zeros(5), *settings(5, 1), *filters)
    assert torch.equal(tokens, logits.argmax(dim=1))


@every_variant
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_rows_end_and_harm_nobody(variant: str, bad: float, on) -> None:
    """Comparisons with NaN are false: nothing may look for an order among such numbers."""
    on(variant)
    logits = logits_of(6, 1000, 5)
    filters = (torch.full((6,), 40), torch.full((6,), 0.9), None)
    whole, _ = sample_tokens(logits, torch.ones(6), *settings(6, 1), *filters)
    logits[1], logits[3, 500:], logits[4, ::2] = bad, bad, bad
    tokens, none = sample_tokens(logits, torch.ones(6), *settings(6, 1), *filters)
    assert none.tolist() == [False, True, False, True, True, False]
    assert torch.equal(tokens[~none], whole[~none])


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
