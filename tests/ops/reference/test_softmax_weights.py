"""Integer weights: exact sums, close to the softmax."""

import math

import pytest
import torch

from quire.ops.reference.softmax_weights import UNITS, softmax_weights


def test_sums_are_the_same_in_any_order() -> None:
    logits = torch.randn(1, 50257, generator=torch.Generator().manual_seed(0)) * 5
    weights = softmax_weights(logits, logits.amax(dim=-1, keepdim=True))
    shuffled = weights[:, torch.randperm(50257, generator=torch.Generator().manual_seed(1))]
    assert int(weights.sum()) == int(shuffled.sum()) == sum(weights[0].tolist())
    assert torch.allclose(weights.double() / weights.sum(), logits.double().softmax(dim=-1), atol=1e-7)


def test_ends_of_the_range() -> None:
    logits = torch.tensor([[0.0, -math.inf, -200.0, -1.0]])
    found = softmax_weights(logits, torch.tensor([[0.0]]))[0].tolist()
    assert found[:3] == [int(UNITS), 0, 0]
    assert found[3] / UNITS == pytest.approx(math.exp(-1), rel=1e-6)
