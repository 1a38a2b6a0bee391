"""The integers of a decode step: their definition against that of any step, and the kernel against the definition."""

from dataclasses import fields
from random import Random

import pytest
import torch

from quire.ops.reference.decode_inputs import decode_inputs as reference
from quire.ops.reference.step_inputs import step_inputs
from quire.ops.step_tensors import RowStates, StepTensors
from tests.ops.triton.device import DEVICE, needs_triton

pytestmark = needs_triton

ROWS, BLOCK_SIZE, BLOCKS = 11, 4, 7
MOST_TOKENS = BLOCK_SIZE * BLOCKS - 3


def states(seed: int, groups: int = 1, blocks: int = BLOCKS) -> RowStates:
    """Rows with everything filled, each computed up to a different place."""
    torch.manual_seed(seed)
    return RowStates(
        tokens=torch.randint(0, 50_000, (ROWS, MOST_TOKENS), dtype=torch.int32, device=DEVICE),
        num_computed=torch.randint(0, MOST_TOKENS, (ROWS,), device=DEVICE),
        lengths_for_angles=torch.randint(1, 99, (ROWS,), device=DEVICE),
        tables=[torch.randint(0, 2**24, (ROWS, blocks), dtype=torch.int32, device=DEVICE) for _ in range(groups)],
    )


def assert_same(found: StepTensors, wanted: StepTensors) -> None:
    for field in fields(StepTensors):
        one, other = getattr(found, field.name), getattr(wanted, field.name)
        pairs = zip(one, other, strict=True) if isinstance(one, list) else [(one, other)]
        for tensor, same in pairs:
            assert tensor.dtype == same.dtype, field.name
            assert torch.equal(tensor, same), field.name
            assert tensor.is_contiguous(), field.name


def some_rows(count: int) -> list[int]:
    return Random(count).sample(range(ROWS), count)


@pytest.mark.parametrize("sequences", [1, 2, 5, ROWS])
@pytest.mark.parametrize("max_blocks", [BLOCKS, BLOCKS + 2])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_step_of_one_token_each(sequences: int, max_blocks: int, groups: int) -> None:
    from quire.ops.triton.decode_inputs import decode_inputs

    known, rows = states(sequences, groups), some_rows(sequences)
    wanted = step_inputs(rows, [1] * sequences, known, BLOCK_SIZE, max_blocks)
    assert_same(reference(torch.tensor(rows, device=DEVICE), known, BLOCK_SIZE, max_blocks), wanted)
    assert_same(decode_inputs(torch.tensor(rows, device=DEVICE), known, BLOCK_SIZE, max_blocks), wanted)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("sequences", [1, 4, ROWS])
def test_a_step_of_several_tokens_each(sequences: int, count: int) -> None:
    from quire.ops.triton.decode_inputs import decode_inputs

    known, rows = states(sequences, groups=2), some_rows(sequences)
    known.num_computed.clamp_(max=MOST_TOKENS - count)
    wanted = step_inputs(rows, [count] * sequences, known, BLOCK_SIZE, BLOCKS)
    assert_same(reference(torch.tensor(rows, device=DEVICE), known, BLOCK_SIZE, BLOCKS, count), wanted)
    assert_same(decode_inputs(torch.tensor(rows, device=DEVICE), known, BLOCK_SIZE, BLOCKS, count), wanted)


def test_several_tokens_at_the_end_of_a_row_stay_at_its_last_place() -> None:
    from quire.ops.triton.decode_inputs import decode_inputs

    known = states(5)
    known.num_computed[:] = MOST_TOKENS - 2
    rows = torch.tensor(some_rows(3), device=DEVICE)
    found = decode_inputs(rows, known, BLOCK_SIZE, BLOCKS, 4)
    assert_same(found, reference(rows, known, BLOCK_SIZE, BLOCKS, 4))
    assert found.lengths.tolist() == [MOST_TOKENS] * 3


def test_short_rows_in_cut_tables() -> None:
    from quire.ops.triton.decode_inputs import decode_inputs

    known = states(1)
    known.num_computed.remainder_(BLOCK_SIZE * 3)
    rows = some_rows(6)
    wanted = step_inputs(rows, [1] * 6, known, BLOCK_SIZE, 3)
    assert_same(reference(torch.tensor(rows, device=DEVICE), known, BLOCK_SIZE, 3), wanted)
    assert_same(decode_inputs(torch.tensor(rows, device=DEVICE), known, BLOCK_SIZE, 3), wanted)


def test_tables_longer_than_a_program_copies() -> None:
    from quire.ops.triton.decode_inputs import decode_inputs

    known = states(2, groups=2, blocks=2100)
    rows = torch.tensor(some_rows(4), device=DEVICE)
    assert_same(decode_inputs(rows, known, BLOCK_SIZE, 2050), reference(rows, known, BLOCK_SIZE, 2050))


@pytest.mark.parametrize("max_blocks", [2, BLOCKS])
def test_a_spare_row_comes_many_times_and_stays_at_its_last_place(max_blocks: int) -> None:
    from quire.ops.triton.decode_inputs import decode_inputs

    known = states(3)
    known.num_computed.clamp_(max=BLOCK_SIZE * 2 - 1)
    known.num_computed[-1] = MOST_TOKENS * 100
    rows = torch.tensor([4, ROWS - 1, 2, ROWS - 1, ROWS - 1], device=DEVICE)
    found = decode_inputs(rows, known, BLOCK_SIZE, max_blocks)
    assert_same(found, reference(rows, known, BLOCK_SIZE, max_blocks))
    assert found.lengths[1] == min(MOST_TOKENS, max_blocks * BLOCK_SIZE)


def test_no_sequences() -> None:
    from quire.ops.triton.decode_inputs import decode_inputs

    rows = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert_same(decode_inputs(rows, states(4), BLOCK_SIZE, 3), reference(rows, states(4), BLOCK_SIZE, 3))
