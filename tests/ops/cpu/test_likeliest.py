"""The likeliest token from the core and from torch: the same, and the same rows without any."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.ops.cpu import likeliest as cpu
from quire.ops.reference import likeliest as reference
from tests.ops.cpu.machines import VARIANTS, machine, needs_core

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
    for found, wanted in zip(cpu.likeliest(logits), reference.likeliest(logits), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("rows", [1, 2, 5, 64])
def test_every_row_is_looked_at_by_any_number_of_threads(rows: int) -> None:
    logits = torch.randn(rows, 300, generator=torch.Generator().manual_seed(rows))
    logits[rows // 2, 7] = torch.nan
    tokens, invalid = cpu.likeliest(logits)
    wanted = logits.argmax(dim=1)
    wanted[rows // 2] = 0
    assert torch.equal(tokens, wanted)
    assert invalid.nonzero().flatten().tolist() == [rows // 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_and_columns_apart_go_to_the_reference(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(cpu.likeliest(logits.to(dtype))[0], logits.to(dtype).argmax(dim=1))
    assert torch.equal(cpu.likeliest(logits.t())[0], logits.argmax(dim=0))
