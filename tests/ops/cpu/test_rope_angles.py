"""Cosine and sine of position angles from the core, against double precision."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.ops.cpu.rope_angles import rope_angles
from quire.ops.reference import rope_angles as reference
from tests.ops.cpu.machines import needs_core

pytestmark = needs_core


def frequencies(half: int, theta: float = 10_000.0) -> Tensor:
    return theta ** -(torch.arange(half) / half)


@given(
    positions=st.lists(st.integers(0, 2**20), min_size=1, max_size=9),
    half=st.integers(1, 70),
    factor=st.sampled_from([1.0, 0.7, 1.19]),
)
def test_angles_are_accurate_up_to_a_million(positions: list[int], half: int, factor: float) -> None:
    at = torch.tensor(positions)
    exact = (at.float().unsqueeze(1) * frequencies(half)).double()  # the angle itself is one of float32
    cos, sin = rope_angles(at, frequencies(half), factor)
    torch.testing.assert_close(cos, (exact.cos() * factor).float(), rtol=0, atol=2e-7)
    torch.testing.assert_close(sin, (exact.sin() * factor).float(), rtol=0, atol=2e-7)
    assert cos.is_contiguous()
    assert sin.is_contiguous()


def test_every_token_with_frequencies_of_its_own() -> None:
    at = torch.tensor([0, 3, 70_000])
    own = torch.stack([frequencies(24), frequencies(24, 500.0), frequencies(24, 1e6)])
    for found, wanted in zip(rope_angles(at, own, 1.5), reference.rope_angles(at, own, 1.5), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_without_the_core_it_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ops.cpu.rope_angles.native.load", lambda: None)
    at = torch.arange(5)
    for found, wanted in zip(
        rope_angles(at, frequencies(8), 2.0), reference.rope_angles(at, frequencies(8), 2.0), strict=True
    ):
        assert torch.equal(found, wanted)
