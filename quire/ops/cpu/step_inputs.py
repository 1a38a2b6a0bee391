"""step_inputs as one call of the native core: on CPUs a small model's step is not much longer than a few dozen tensor
operations."""

import torch
from torch import Tensor

from quire.ops.cpu import native
from quire.ops.reference import step_inputs as reference
from quire.ops.step_tensors import RowStates, StepTensors

_PER_TOKEN = 3
"""Ids, positions and lengths for angles; a row of slots for every KV group comes behind them."""


def step_inputs(
    rows: Tensor, counts: Tensor, num_tokens: int, states: RowStates, block_size: int, max_blocks: int
) -> StepTensors:
    core = native.load()
    if core is None:
        return reference.step_inputs(rows, counts, num_tokens, states, block_size, max_blocks)
    sequences, groups = len(rows), len(states.tables)
    num_rows, row_blocks = states.tables[0].shape
    max_blocks = min(max_blocks, row_blocks)
    per_token = torch.empty((_PER_TOKEN + groups, num_tokens), dtype=torch.int64)
    starts, lengths = torch.empty(sequences + 1, dtype=torch.int64), torch.empty(sequences, dtype=torch.int64)
    tables = torch.empty((groups, sequences, max_blocks), dtype=torch.int32)
    core.step_inputs(
        rows.data_ptr(),
        counts.data_ptr(),
        sequences,
        num_tokens,
        num_rows,
        states.tokens.data_ptr(),
        states.tokens.shape[1],
        states.num_computed.data_ptr(),
        states.lengths_for_angles.data_ptr(),
        [table.data_ptr() for table in states.tables],
        row_blocks,
        block_size,
        per_token.data_ptr(),
        starts.data_ptr(),
        lengths.data_ptr(),
        tables.data_ptr(),
        max_blocks,
    )
    ids, positions, lengths_for_angles, *slots = per_token.unbind()
    return StepTensors(ids, positions, lengths_for_angles, starts, lengths, slots, list(tables.unbind()))
