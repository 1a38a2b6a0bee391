"""The place of the largest logit, as the core finds it, and how it says that there is none."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.ops.cpu.machines import every_variant, machine, needs_core

pytestmark = needs_core


def argmax(variant: str, values: Tensor) -> tuple[Tensor, Tensor]:
    """Places and largest values of rows."""
    places = torch.full((len(values),), -1)
    peaks = torch.full((len(values),), torch.nan)
    machine(variant).argmax(values.data_ptr(), *values.shape, places.data_ptr(), peaks.data_ptr())
    return places, peaks


@every_variant
@given(rows=st.integers(1, 4), columns=st.integers(1, 200), distinct=st.integers(1, 50))
def test_the_first_of_the_largest(variant: str, rows: int, columns: int, distinct: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    values = torch.randint(-distinct, distinct + 1, (rows, columns), generator=generator).float()
    places, peaks = argmax(variant, values)
    wanted = values.amax(dim=1)
    assert torch.equal(peaks, wanted)
    assert places.tolist() == [row.tolist().index(peak) for row, peak in zip(values, wanted.tolist(), strict=True)]


@every_variant
@pytest.mark.parametrize("columns", [1, 5, 40])
def test_infinite_values(variant: str, columns: int) -> None:
    lowest = torch.full((1, columns), -torch.inf)
    places, peaks = argmax(variant, lowest)
    assert (places.item(), peaks.item()) == (0, -torch.inf)
    lowest[0, -1] = -1e30
    places, peaks = argmax(variant, lowest)
    assert (places.item(), peaks.item()) == (columns - 1, pytest.approx(-1e30))
    lowest[0, -1] = torch.inf
    places, peaks = argmax(variant, lowest)
    assert (places.item(), peaks.item()) == (columns - 1, torch.inf)


@every_variant
@pytest.mark.parametrize("columns", [1, 7, 16, 37])
def test_what_is_no_number_is_said(variant: str, columns: int) -> None:
    for place in range(columns):
        values = torch.randn(2, columns)
        values[0, place] = torch.nan
        places, peaks = argmax(variant, values)
        assert peaks[0].isnan()
        assert 0 <= places[0] < columns
        assert peaks[1] == values[1].max()
