"""The gated_activation kernel against its definition."""

import pytest
import torch

from quire.ops.reference.gated_activation import gated_activation as reference
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton

pytestmark = needs_triton

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")


def check(gate_up: torch.Tensor, activation: str) -> None:
    from quire.ops.triton.gated_activation import gated_activation

    close = TOLERANCES[gate_up.dtype]
    gated = gated_activation(gate_up, activation)
    torch.testing.assert_close(gated, reference(gate_up, activation), rtol=close, atol=close)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 2048), (3, 2 * 77), (2, 2 * 1500), (5, 2), (0, 64), (2, 3, 80), (18,)])
def test_shapes(shape: tuple[int, ...], activation: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    check(torch.randn(shape, dtype=dtype, device=DEVICE) * 2, activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:overflow encountered")  # numpy's, of the interpreter: exp(200) is meant to be inf
def test_gates_far_from_zero(activation: str) -> None:
    gate = torch.tensor([-2e4, -200.0, -90.0, -20.0, -5.0, 5.0, 20.0, 90.0, 200.0, 2e4], device=DEVICE)
    check(torch.cat((gate, torch.linspace(0.5, 1.5, 10, device=DEVICE))).unsqueeze(0), activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_is_no_number_stays(activation: str) -> None:
    gate_up = torch.ones(1, 80, device=DEVICE)
    gate_up[0, 3], gate_up[0, 50] = torch.nan, torch.inf
    from quire.ops.triton.gated_activation import gated_activation

    gated = gated_activation(gate_up, activation)
    assert gated[0, 3].isnan()
    assert gated[0, 10] == torch.inf
    assert gated.isfinite().sum() == 38


def test_rows_of_a_wider_tensor() -> None:
    torch.manual_seed(2)
    check(torch.randn(4, 300, device=DEVICE)[:, 7:207], "silu")
    check(torch.randn(4, 3, 300, device=DEVICE)[:, 1:, 7:207], "silu")
