"""The token with the largest logit, from the core and from torch: the same, and the same rows without any."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.ops.cpu import argmax as cpu
from quire.ops.reference import argmax as reference
from tests.ops.cpu.machines import VARIANTS, every_variant, machine, needs_core

pytestmark = needs_core

WRONG = (torch.nan, torch.inf)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    own = machine(VARIANTS[0], request.param)
    monkeypatch.setattr(cpu, "machine", lambda: own)


@given(rows=st.integers(0, 20), columns=st.integers(1, 200), seed=st.integers(0, 2**32))
def test_tokens_are_the_reference_s(rows: int, columns: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-20, 20, (rows, columns), generator=generator).float()  # with ties
    logits[torch.rand(rows, columns, generator=generator) < 0.1] = -torch.inf
    broken = torch.rand(rows, generator=generator) < 0.3
    places = torch.randint(0, columns, (rows,), generator=generator)
    logits[broken, places[broken]] = WRONG[seed % 2]
    logits[torch.rand(rows, generator=generator) < 0.1] = -torch.inf
    for found, wanted in zip(cpu.argmax(logits), reference.argmax(logits), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("rows", [1, 2, 5, 64])
def test_every_row_is_looked_at_by_any_number_of_threads(rows: int) -> None:
    logits = torch.randn(rows, 300, generator=torch.Generator().manual_seed(rows))
    logits[rows // 2, 7] = torch.nan
    tokens, invalid = cpu.argmax(logits)
    wanted = logits.argmax(dim=1)
    wanted[rows // 2] = 0
    assert torch.equal(tokens, wanted)
    assert invalid.nonzero().flatten().tolist() == [rows // 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_and_columns_apart_go_to_the_reference(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(cpu.argmax(logits.to(dtype))[0], logits.to(dtype).argmax(dim=1))
    assert torch.equal(cpu.argmax(logits.t())[0], logits.argmax(dim=0))


def argmax_of(variant: str, logits: Tensor) -> tuple[list[int], list[bool]]:
    """Tokens of rows, and whether they have none, on one instruction set."""
    tokens, invalid = torch.full((len(logits),), -1), torch.zeros(len(logits), dtype=torch.bool)
    machine(variant).argmax(
        logits=logits.data_ptr(),
        rows=logits.shape[0],
        columns=logits.shape[1],
        tokens=tokens.data_ptr(),
        invalid=invalid.data_ptr(),
    )
    return tokens.tolist(), invalid.tolist()


@every_variant
@given(rows=st.integers(1, 4), columns=st.integers(1, 200), distinct=st.integers(1, 50))
def test_the_first_of_the_largest(variant: str, rows: int, columns: int, distinct: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    logits = torch.randint(-distinct, distinct + 1, (rows, columns), generator=generator).float()
    tokens, invalid = argmax_of(variant, logits)
    assert tokens == [row.index(max(row)) for row in logits.tolist()]
    assert not any(invalid)


@every_variant
@pytest.mark.parametrize("columns", [1, 5, 40])
def test_infinite_logits(variant: str, columns: int) -> None:
    logits = torch.full((1, columns), -torch.inf)
    assert argmax_of(variant, logits) == ([0], [True])
    logits[0, -1] = -1e30
    assert argmax_of(variant, logits) == ([columns - 1], [False])
    logits[0, -1] = torch.inf
    assert argmax_of(variant, logits) == ([0], [True])


@every_variant
@pytest.mark.parametrize("columns", [1, 7, 16, 37])
def test_rows_with_nan_are_invalid(variant: str, columns: int) -> None:
    for place in range(columns):
        logits = torch.randn(2, columns, generator=torch.Generator().manual_seed(place))
        logits[0, place] = torch.nan
        assert argmax_of(variant, logits) == ([0, int(logits[1].argmax())], [True, False])
