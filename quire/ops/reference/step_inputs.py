"""step_inputs: from the rows of a step to its integers. A few tensor operations, however many sequences there are."""

from collections.abc import Sequence

import torch

from quire.ops.step_tensors import RowStates, StepTensors
from quire.ops.upload import upload


def step_inputs(
    rows: Sequence[int], counts: Sequence[int], states: RowStates, block_size: int, max_blocks: int
) -> StepTensors:
    device, num_tokens = states.tokens.device, sum(counts)
    row_ids, new = upload(rows, torch.int64, device), upload(counts, torch.int64, device)
    query_starts = torch.zeros(len(rows) + 1, dtype=torch.int64, device=device)
    torch.cumsum(new, 0, out=query_starts[1:])
    token_rows = torch.repeat_interleave(row_ids, new, output_size=num_tokens)
    starts = torch.repeat_interleave(query_starts[:-1], new, output_size=num_tokens)
    positions = states.num_computed[token_rows] + torch.arange(num_tokens, device=device) - starts
    blocks, within = positions // block_size, positions % block_size
    return StepTensors(
        rows=row_ids,
        input_ids=states.tokens[token_rows, positions].long(),
        positions=positions,
        lengths_for_angles=states.lengths_for_angles[token_rows],
        query_starts=query_starts,
        lengths=states.num_computed[row_ids] + new,
        slots=[table[token_rows, blocks].long() * block_size + within for table in states.tables],
        tables=[table[row_ids, :max_blocks] for table in states.tables],
    )
