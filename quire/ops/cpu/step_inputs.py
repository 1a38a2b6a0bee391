"""step_inputs as one call of the native core.

For a small model the layers of a step take no more than a few milliseconds, and after them the caches hold nothing of
torch: its first operations of every kind take tens of microseconds each.
"""

from collections.abc import Sequence

import torch

from quire.ops.reference import step_inputs as reference
from quire.ops.step_tensors import RowStates, StepTensors


def step_inputs(
    rows: Sequence[int], counts: Sequence[int], states: RowStates, block_size: int, max_blocks: int
) -> StepTensors:
    core = states.core
    if core is None:
        return reference.step_inputs(rows, counts, states, block_size, max_blocks)
    num_tokens, sequences, groups = sum(counts), len(rows), len(states.tables)
    max_blocks = min(max_blocks, states.tables[0].shape[1])
    sizes = (*(num_tokens,) * (3 + groups), sequences, sequences, sequences + 1)
    numbers = torch.empty(sum(sizes), dtype=torch.int64)
    tables = torch.empty((groups, sequences, max_blocks), dtype=torch.int32)
    core.step_inputs(rows, counts, block_size, num_tokens, numbers.data_ptr(), tables.data_ptr(), max_blocks)
    ids, positions, lengths_for_angles, *slots, row_ids, lengths, starts = numbers.split_with_sizes(sizes)
    return StepTensors(row_ids, ids, positions, lengths_for_angles, starts, lengths, slots, list(tables.unbind()))
