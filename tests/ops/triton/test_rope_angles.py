"""The rope_angles kernel against its definition."""

import pytest
import torch

from quire.ops.reference.rope_angles import rope_angles as reference
from tests.ops.triton.device import DEVICE, needs_triton

pytestmark = needs_triton


def check(positions: torch.Tensor, frequencies: torch.Tensor, factor: float) -> None:
    from quire.ops.triton.rope_angles import rope_angles

    for angles, expected in zip(
        rope_angles(positions, frequencies, factor), reference(positions, frequencies, factor), strict=True
    ):
        torch.testing.assert_close(angles, expected, rtol=0, atol=1e-6)


def frequencies_of(half: int) -> torch.Tensor:
    return 10000.0 ** -(torch.arange(half, device=DEVICE) / half)


@pytest.mark.parametrize("tokens", [0, 1, 7, 40])
@pytest.mark.parametrize("half", [1, 20, 64, 128])
def test_all_tokens_share_frequencies(tokens: int, half: int) -> None:
    torch.manual_seed(1)
    check(torch.randint(0, 4096, (tokens,), device=DEVICE), frequencies_of(half), 1.0)


@pytest.mark.parametrize("half", [20, 64])
def test_each_token_has_its_own(half: int) -> None:
    torch.manual_seed(2)
    frequencies = frequencies_of(half) * torch.rand(9, 1, device=DEVICE)
    check(torch.randint(0, 4096, (9,), device=DEVICE), frequencies, 1.25)


def test_angles_of_many_turns() -> None:
    """A frequency of 1 turns the last position of a context of a million 167000 times."""
    positions = torch.tensor([105615, 131071, 1048575, 10**7 + 1], device=DEVICE)
    check(positions, frequencies_of(64), 0.5)


def test_views() -> None:
    torch.manual_seed(3)
    positions = torch.randint(0, 4096, (10, 3), device=DEVICE)
    check(positions[:, 1], torch.rand(10, 50, device=DEVICE)[:, 5:37], 1.0)
