"""step_inputs: from the rows of a step to its integers. A few tensor operations, however many sequences there are."""

import torch
from torch import Tensor

from quire.ops.step_tensors import RowStates, StepTensors


def step_inputs(
    rows: Tensor, counts: Tensor, num_tokens: int, states: RowStates, block_size: int, max_blocks: int
) -> StepTensors:
    device = rows.device
    query_starts = torch.zeros(len(rows) + 1, dtype=torch.int64, device=device)
    torch.cumsum(counts, 0, out=query_starts[1:])
    token_rows = torch.repeat_interleave(rows, counts, output_size=num_tokens)
    starts = torch.repeat_interleave(query_starts[:-1], counts, output_size=num_tokens)
    positions = states.num_computed[token_rows] + torch.arange(num_tokens, device=device) - starts
    blocks, within = positions // block_size, positions % block_size
    return StepTensors(
        input_ids=states.tokens[token_rows, positions].long(),
        positions=positions,
        lengths_for_angles=states.lengths_for_angles[token_rows],
        query_starts=query_starts,
        lengths=states.num_computed[rows] + counts,
        slots=[table[token_rows, blocks].long() * block_size + within for table in states.tables],
        tables=[table[rows, :max_blocks] for table in states.tables],
    )
