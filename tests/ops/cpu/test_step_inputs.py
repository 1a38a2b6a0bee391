"""The integers around a step, from the core and from tensor operations: the same, for any rows in any state."""

from dataclasses import fields
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.ops.cpu.finish_step import finish_step
from quire.ops.cpu.step_inputs import step_inputs
from quire.ops.reference import finish_step as reference_finish
from quire.ops.reference import step_inputs as reference_inputs
from quire.ops.step_tensors import RowStates, StepTensors
from tests.ops.cpu.machines import needs_core

pytestmark = needs_core

ROWS, BLOCK_SIZE, BLOCKS = 9, 4, 7
MOST_TOKENS = BLOCK_SIZE * BLOCKS - 3


def states(seed: int, groups: int = 1) -> RowStates:
    """Rows with everything filled, each computed up to a different place."""
    generator = torch.Generator().manual_seed(seed)
    return RowStates(
        tokens=torch.randint(0, 50_000, (ROWS, MOST_TOKENS), generator=generator, dtype=torch.int32),
        num_computed=torch.randint(0, MOST_TOKENS, (ROWS,), generator=generator),
        lengths_for_angles=torch.randint(1, 99, (ROWS,), generator=generator),
        tables=[torch.randint(0, 2**24, (ROWS, BLOCKS), generator=generator, dtype=torch.int32) for _ in range(groups)],
    )


def some_step(known: RowStates, seed: int, sequences: int) -> tuple[list[int], list[int]]:
    """Rows in any order, and how many tokens of each: one or more, as far as there is room."""
    random = Random(seed)
    rows = random.sample(range(ROWS), sequences)
    room = [MOST_TOKENS - int(known.num_computed[row]) for row in rows]
    return rows, [random.choice((1, random.randint(1, most))) for most in room]


def assert_same(found: StepTensors, wanted: StepTensors) -> None:
    for field in fields(StepTensors):
        one, other = getattr(found, field.name), getattr(wanted, field.name)
        pairs = zip(one, other, strict=True) if isinstance(one, list) else [(one, other)]
        for tensor, same in pairs:
            assert tensor.dtype == same.dtype, field.name
            assert torch.equal(tensor, same), field.name
            assert tensor.is_contiguous(), field.name


@given(st.integers(0, 2**32), st.integers(1, ROWS), st.integers(1, 3), st.integers(1, BLOCKS + 2))
def test_inputs_are_the_reference_s(seed: int, sequences: int, groups: int, max_blocks: int) -> None:
    known = states(seed, groups)
    rows, counts = some_step(known, seed, sequences)
    found = step_inputs(rows, counts, known, BLOCK_SIZE, max_blocks)
    assert_same(found, reference_inputs.step_inputs(rows, counts, known, BLOCK_SIZE, max_blocks))


@given(st.integers(0, 2**32), st.integers(1, ROWS), st.data())
def test_rows_know_what_a_step_did(seed: int, sequences: int, data: st.DataObject) -> None:
    known, same = states(seed), states(seed)
    rows = Random(seed).sample(range(ROWS), sequences)
    lengths = torch.tensor([data.draw(st.integers(1, MOST_TOKENS - 1)) for _ in rows])
    sampled = data.draw(st.integers(0, sequences))
    tokens = torch.arange(100, 100 + sampled) if sampled else None
    finish_step(known, torch.tensor(rows), lengths, tokens)
    reference_finish.finish_step(same, torch.tensor(rows), lengths, tokens)
    assert torch.equal(known.num_computed, same.num_computed)
    assert torch.equal(known.tokens, same.tokens)
    for place, row in enumerate(rows):
        assert known.num_computed[row] == lengths[place]
        if place < sampled:
            assert known.tokens[row, lengths[place]] == 100 + place


@pytest.mark.parametrize("row", [-1, ROWS])
def test_a_row_that_there_is_not(row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of {ROWS}"):
        step_inputs([0, row], [1, 1], states(0), BLOCK_SIZE, 2)
    with pytest.raises(IndexError, match=f"row {row} of {ROWS}"):
        finish_step(states(0), torch.tensor([0, row]), torch.tensor([1, 1]), None)


def test_more_tokens_than_a_row_has_room_for() -> None:
    known = states(0)
    known.num_computed[3] = MOST_TOKENS - 1
    with pytest.raises(IndexError, match=f"row 3, which has room for {MOST_TOKENS}"):
        step_inputs([3], [2], known, BLOCK_SIZE, BLOCKS)
    before = known.tokens.clone()
    with pytest.raises(IndexError, match=f"row 3, which has room for {MOST_TOKENS}"):
        finish_step(known, torch.tensor([2, 3]), torch.tensor([1, MOST_TOKENS]), torch.tensor([7, 8]))
    assert torch.equal(known.tokens, before)


def test_without_the_core_it_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ops.step_tensors.native.load", lambda: None)
    known, same = states(1), states(1)
    assert known.core is None
    rows, counts = some_step(known, 1, 4)
    found = step_inputs(rows, counts, known, BLOCK_SIZE, BLOCKS)
    assert_same(found, reference_inputs.step_inputs(rows, counts, same, BLOCK_SIZE, BLOCKS))
    finish_step(known, found.rows, torch.ones_like(found.rows), None)
    assert known.num_computed[rows].tolist() == [1, 1, 1, 1]
