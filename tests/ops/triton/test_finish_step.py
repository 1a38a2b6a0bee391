"""What rows know after a step, from the kernel and from tensor operations; and spare rows, which do no harm."""

import pytest
import torch

from quire.ops.reference.finish_step import finish_step as reference
from quire.ops.step_tensors import RowStates
from tests.ops.triton.device import DEVICE, needs_triton

pytestmark = needs_triton

ROWS, MOST_TOKENS = 300, 25


def states() -> RowStates:
    torch.manual_seed(0)
    return RowStates(
        tokens=torch.randint(0, 50_000, (ROWS, MOST_TOKENS), dtype=torch.int32, device=DEVICE),
        num_computed=torch.randint(0, MOST_TOKENS, (ROWS,), device=DEVICE),
        lengths_for_angles=torch.randint(1, 99, (ROWS,), device=DEVICE),
        tables=[],
    )


@pytest.mark.parametrize("sequences", [0, 1, 5, 128, 129, ROWS])
@pytest.mark.parametrize("share_sampled", [None, 0.0, 0.5, 1.0])
def test_rows_know_what_a_step_did(sequences: int, share_sampled: float | None) -> None:
    from quire.ops.triton.finish_step import finish_step

    known, same = states(), states()
    rows = torch.randperm(ROWS)[:sequences].to(DEVICE)
    lengths = torch.randint(1, MOST_TOKENS, (sequences,)).to(DEVICE)
    tokens = None
    if share_sampled is not None:
        tokens = torch.randint(100, 200, (int(sequences * share_sampled),)).to(DEVICE)
    finish_step(known, rows, lengths, tokens)
    reference(same, rows, lengths, tokens)
    assert torch.equal(known.num_computed, same.num_computed)
    assert torch.equal(known.tokens, same.tokens)


@pytest.mark.parametrize("length", [3, MOST_TOKENS, MOST_TOKENS * 1000])
def test_a_spare_row_comes_many_times_and_is_written_alone(length: int) -> None:
    from quire.ops.triton.finish_step import finish_step

    known, before = states(), states()
    spare = ROWS - 1
    rows = torch.tensor([7, spare, spare, spare], device=DEVICE)
    finish_step(known, rows, torch.tensor([4, *[length] * 3], device=DEVICE), torch.arange(60, 64, device=DEVICE))
    assert known.num_computed[7] == 4
    assert known.tokens[7, 4] == 60
    assert known.num_computed[spare] == length
    if length < MOST_TOKENS:
        assert 61 <= int(known.tokens[spare, length]) <= 63
    known.tokens[7, 4] = before.tokens[7, 4]
    assert torch.equal(known.tokens[:spare], before.tokens[:spare])


def test_full_rows_keep_their_neighbours() -> None:
    """A token that a row has no room for is dropped."""
    from quire.ops.triton.finish_step import finish_step

    known, before = states(), states()
    rows = torch.tensor([1, 2], device=DEVICE)
    finish_step(known, rows, torch.full((2,), MOST_TOKENS, device=DEVICE), torch.tensor([5, 6], device=DEVICE))
    assert torch.equal(known.tokens, before.tokens)
