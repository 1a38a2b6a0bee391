"""Which drafts are taken: the definition by example, and kernel and CPU code against the definition."""

from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch import Tensor

from quire.ops.reference.accept_drafts import accept_drafts as reference
from quire.ops.step_tensors import RowStates
from tests.ops.triton.device import DEVICE, needs_triton

ROWS, MOST_TOKENS, MOST_DRAFTS = 70, 40, 4
Accept = Callable[[RowStates, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@pytest.fixture(params=["cpu", pytest.param("triton", marks=needs_triton)])
def accept(request: pytest.FixtureRequest) -> Accept:
    found: Accept = import_module(f"quire.ops.{request.param}.accept_drafts").accept_drafts
    return found


def device_of(accept: Accept) -> str:
    return "cpu" if ".cpu." in accept.__module__ else DEVICE


def states(device: str, seed: int = 0) -> RowStates:
    """Few tokens, so that many drafts are right."""
    torch.manual_seed(seed)
    return RowStates(
        tokens=torch.randint(0, 3, (ROWS, MOST_TOKENS), dtype=torch.int32).to(device),
        num_computed=torch.randint(0, MOST_TOKENS - 9, (ROWS,)).to(device),
        lengths_for_angles=torch.zeros(ROWS, dtype=torch.int64, device=device),
        tables=[],
    )


def test_what_is_right_is_taken() -> None:
    known = RowStates(torch.zeros((1, 12), dtype=torch.int32), torch.tensor([3]), torch.zeros(1), [])
    known.tokens[0, :8] = torch.tensor([9, 8, 7, 6, 5, 4, 3, 2])  # known up to 6, then the drafts 5, 4, 3, 2
    row, length, granted = torch.tensor([0]), torch.tensor([8]), torch.tensor([4])
    counts, drafted = reference(known, row, length, granted, torch.tensor([[5, 4, 1, 2, 7]]), torch.tensor([4]))
    assert (counts.tolist(), drafted.tolist()) == ([3], [4])
    assert known.tokens[0, :8].tolist() == [9, 8, 7, 6, 5, 4, 1, 2]
    assert known.num_computed.tolist() == [6], "the last of the new tokens is not computed yet"


def test_no_more_are_taken_than_are_ready() -> None:
    known = RowStates(torch.ones((1, 12), dtype=torch.int32), torch.tensor([3]), torch.zeros(1), [])
    given = (torch.tensor([0]), torch.tensor([8]), torch.tensor([4]), torch.ones((1, 5), dtype=torch.int64))
    assert [each.tolist() for each in reference(known, *given, torch.tensor([2]))] == [[3], [2]]


@pytest.mark.parametrize("sequences", [1, 5, 33, ROWS])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_as_defined(sequences: int, seed: int, accept: Accept) -> None:
    device = device_of(accept)
    known, same = states(device, seed), states("cpu", seed)
    rows = torch.randperm(ROWS)[:sequences]
    granted = torch.randint(0, MOST_DRAFTS + 1, (sequences,))
    lengths = same.num_computed[rows] + 1 + granted
    drawn = torch.randint(0, 3, (sequences, MOST_DRAFTS + 1))
    ready = torch.randint(0, MOST_DRAFTS + 1, (ROWS,))
    found = accept(known, *(each.to(device) for each in (rows, lengths, granted, drawn, ready)))
    wanted = reference(same, rows, lengths, granted, drawn, ready)
    after, expected = (*found, known.tokens, known.num_computed), (*wanted, same.tokens, same.num_computed)
    for one, other in zip(after, expected, strict=True):
        assert torch.equal(one.cpu(), other)


@needs_triton
def test_a_spare_row_past_its_end_keeps_its_neighbours() -> None:
    from quire.ops.triton.accept_drafts import accept_drafts

    known, before = states(DEVICE), states(DEVICE)
    rows, granted = torch.tensor([1, 2, 2], device=DEVICE), torch.full((3,), 4, device=DEVICE)
    drawn = known.tokens[1:4, :5].long().contiguous()
    ready = torch.full((ROWS,), 4, device=DEVICE)
    accept_drafts(known, rows, torch.full((3,), MOST_TOKENS + 4, device=DEVICE), granted, drawn, ready)
    assert torch.equal(known.tokens, before.tokens)
