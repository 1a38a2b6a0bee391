"""Logprobs by the native core against the reference: the same tokens and ranks, on every variant."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.ops.cpu import machine as process
from quire.ops.cpu.token_logprobs import token_logprobs
from quire.ops.reference.token_logprobs import token_logprobs as reference
from quire.sampling.logprobs import LogprobsTensors
from tests.ops.cpu.machines import every_variant, machine, needs_core

pytestmark = needs_core


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch):
    """Has ops of this process run on a variant."""
    return lambda variant, threads=1: monkeypatch.setattr(process._Process, "machine", machine(variant, threads))


def compare(logits: torch.Tensor, tokens: torch.Tensor, counts: torch.Tensor, most: int) -> None:
    asking = counts >= 0
    found = LogprobsTensors(token_logprobs(logits, tokens, counts, most)[asking])
    wanted = LogprobsTensors(reference(logits, tokens, counts, most)[asking])
    assert torch.equal(found.ids, wanted.ids)
    assert torch.equal(found.ranks, wanted.ranks)
    torch.testing.assert_close(found.logprobs, wanted.logprobs, rtol=1e-6, atol=1e-6)


@every_variant
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("vocabulary", "most"), [(1, 1), (5, 5), (64, 0), (1009, 128), (49_152, 5), (49_153, 20)])
def test_the_same_as_the_reference(variant: str, threads: int, vocabulary: int, most: int, on) -> None:
    on(variant, threads)
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(9, vocabulary, generator=generator) * 4
    tokens = torch.randint(0, vocabulary, (9,), generator=generator)
    compare(logits, tokens, torch.full((9,), most, dtype=torch.int32), most)
    some = torch.tensor([-1, 0, most, -1, most, most, -1, 1, 0], dtype=torch.int32).clamp(max=most)
    compare(logits, tokens, some, most)


@every_variant
@given(vocabulary=st.integers(1, 300), most=st.integers(0, 128), levels=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_ties_go_by_id(variant: str, vocabulary: int, most: int, levels: int, seed: int) -> None:
    """Few distinct values, zeros of either sign and hidden tokens among them."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor([0.0, -0.0, -math.inf, 3.0])[:levels]
    logits = values[torch.randint(0, levels, (3, vocabulary), generator=generator)]
    logits[:, 0] = 1.0
    tokens = torch.randint(0, vocabulary, (3,), generator=generator)
    most = min(most, vocabulary)
    before = process._Process.machine
    process._Process.machine = machine(variant)
    try:
        compare(logits, tokens, torch.full((3,), most, dtype=torch.int32), most)
    finally:
        process._Process.machine = before


@every_variant
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_row_stays_alone(variant: str, broken: float, on) -> None:
    on(variant)
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(1))
    whole = token_logprobs(logits, torch.tensor([1, 2, 3]), torch.full((3,), 4, dtype=torch.int32), 4)
    logits[1] = broken
    found = token_logprobs(logits, torch.tensor([1, 2, 3]), torch.full((3,), 4, dtype=torch.int32), 4)
    assert torch.equal(found[[0, 2]], whole[[0, 2]])
    assert not LogprobsTensors(found).logprobs[1].isfinite().any()


@every_variant
def test_a_token_that_has_no_logit_is_refused(variant: str, on) -> None:
    on(variant)
    with pytest.raises(IndexError, match="token 7 of 7"):
        token_logprobs(torch.zeros(1, 7), torch.tensor([7]), torch.zeros(1, dtype=torch.int32), 0)
