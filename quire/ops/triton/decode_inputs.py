"""decode_inputs on a GPU: one launch for each KV group, of which the first also does what groups have in common."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.reference.decode_inputs import last_position
from quire.ops.step_tensors import RowStates, StepTensors

_STRETCH = 1024
"""Blocks of a table that a program copies: 16384 tokens of a sequence, 8 for each thread of 4 warps."""


@triton.jit(do_not_specialize=["num_sequences", "last", "num_blocks"])
def _decode_inputs(
    rows_at,
    tokens_at,
    row_tokens,
    num_computed_at,
    angles_at,
    table_at,
    row_blocks,
    input_ids_at,
    positions_at,
    lengths_for_angles_at,
    query_starts_at,
    lengths_at,
    slots_at,
    gathered_at,  # int32 [sequences, num_blocks]
    num_sequences,
    last,
    num_blocks,
    count: tl.constexpr,
    block_size: tl.constexpr,
    stretch: tl.constexpr,
    is_first_group: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    is_sequence = sequence < num_sequences  # the program behind the last only writes where that ends
    row = tl.load(rows_at + sequence, mask=is_sequence, other=0)
    if tl.program_id(1) == 0:
        computed = tl.load(num_computed_at + row)
        angles = tl.load(angles_at + row)
        for number in tl.static_range(count):
            position = tl.minimum(computed + number, last)
            place = sequence * count + number
            block = tl.load(table_at + row * row_blocks + position // block_size).to(tl.int64)
            tl.store(slots_at + place, block * block_size + position % block_size, mask=is_sequence)
            if is_first_group:
                token = tl.load(tokens_at + row * row_tokens + position).to(tl.int64)
                tl.store(input_ids_at + place, token, mask=is_sequence)
                tl.store(positions_at + place, position, mask=is_sequence)
                tl.store(lengths_for_angles_at + place, angles, mask=is_sequence)
        if is_first_group:
            tl.store(lengths_at + sequence, tl.minimum(computed + count - 1, last) + 1, mask=is_sequence)
            tl.store(query_starts_at + sequence, sequence * count)
    column = tl.program_id(1) * stretch + tl.arange(0, stretch)
    is_there = column < tl.where(is_sequence, num_blocks, 0)
    blocks = tl.load(table_at + row * row_blocks + column, mask=is_there, other=0)
    tl.store(gathered_at + sequence * num_blocks + column, blocks, mask=is_there)


def decode_inputs(rows: Tensor, states: RowStates, block_size: int, max_blocks: int, count: int = 1) -> StepTensors:
    """rows: int64 [sequences], contiguous."""
    assert rows.is_contiguous(), f"the stride of rows is {rows.stride()}"
    num_sequences, row_blocks = len(rows), states.tables[0].shape[1]
    num_blocks, num_tokens = min(max_blocks, row_blocks), num_sequences * count
    step = StepTensors(
        rows=rows,
        input_ids=rows.new_empty(num_tokens),
        positions=rows.new_empty(num_tokens),
        lengths_for_angles=rows.new_empty(num_tokens),
        query_starts=rows.new_empty(num_sequences + 1),
        lengths=torch.empty_like(rows),
        slots=[rows.new_empty(num_tokens) for _ in states.tables],
        tables=[table.new_empty((num_sequences, num_blocks)) for table in states.tables],
    )
    stretch = min(_STRETCH, triton.next_power_of_2(num_blocks))
    known = (rows, states.tokens, states.tokens.shape[1], states.num_computed, states.lengths_for_angles)
    written = (step.input_ids, step.positions, step.lengths_for_angles, step.query_starts, step.lengths)
    for group, table in enumerate(states.tables):
        _decode_inputs[(num_sequences + 1, triton.cdiv(num_blocks, stretch))](
            *known,
            table,
            row_blocks,
            *written,
            step.slots[group],
            step.tables[group],
            num_sequences,
            last_position(states, block_size, max_blocks),
            num_blocks,
            count=count,
            block_size=block_size,
            stretch=stretch,
            is_first_group=group == 0,
            num_warps=min(4, max(1, stretch // 256)),
        )
    return step
