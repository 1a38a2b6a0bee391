"""decode_inputs: `step_inputs` of a step that computes equally many tokens of each row, one or a few, for rows that
only the device knows.

Nothing here depends on values, so a graph can hold it. Batches of graphs are padded with a spare row whose state is of
no use: it may have been computed past its end, and then stays at the last place that it, and the step's tables, have.
"""

import torch
from torch import Tensor

from quire.ops.step_tensors import RowStates, StepTensors


def decode_inputs(rows: Tensor, states: RowStates, block_size: int, max_blocks: int, count: int = 1) -> StepTensors:
    """rows: int64 [sequences]."""
    last = last_position(states, block_size, max_blocks)
    several = states.num_computed[rows, None] + torch.arange(count, device=rows.device)
    positions = several.clamp(max=last).flatten()
    of_tokens = rows.repeat_interleave(count)
    blocks, within = positions // block_size, positions % block_size
    return StepTensors(
        rows=rows,
        input_ids=states.tokens[of_tokens, positions].long(),
        positions=positions,
        lengths_for_angles=states.lengths_for_angles[of_tokens],
        query_starts=torch.arange(len(rows) + 1, device=rows.device) * count,
        lengths=positions[count - 1 :: count] + 1,
        slots=[table[of_tokens, blocks].long() * block_size + within for table in states.tables],
        tables=[table[rows, :max_blocks] for table in states.tables],
    )


def last_position(states: RowStates, block_size: int, max_blocks: int) -> int:
    """The last that a row has a token for, and tables cut to `max_blocks` a block."""
    num_blocks = min(max_blocks, states.tables[0].shape[1])
    return min(states.tokens.shape[1], num_blocks * block_size) - 1
