"""From a plan to the tensors of a step. A few tensor operations, however many sequences there are."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quire.core.plan import StepPlan
from quire.layers.batch import Batch, KVLayer
from quire.worker.rows import Rows


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What a forward takes, and where its samples come from and go to."""

    input_ids: Tensor  # [tokens]
    positions: Tensor  # [tokens]
    batch: Batch
    rows: Tensor  # [sequences]
    sampling_rows: Tensor  # [samples]
    sampling_indices: Tensor  # [samples]: the last token of each sampling sequence
    sampling_positions: Tensor  # [samples]: where the sampled token will stand


def make_inputs(plan: StepPlan, rows: Rows, kv: list[KVLayer], block_size: int, max_blocks: int) -> StepInputs:
    """`max_blocks` bounds the blocks of the longest sequence in the step, so that tables can be cut to it."""
    device = rows.tokens.device
    row_ids = torch.tensor(plan.rows, device=device)
    counts = torch.tensor(plan.counts, device=device)
    query_starts = torch.zeros(len(plan.rows) + 1, dtype=torch.int64, device=device)
    torch.cumsum(counts, 0, out=query_starts[1:])
    computed = rows.num_computed[row_ids]
    token_rows = torch.repeat_interleave(row_ids, counts, output_size=plan.num_tokens)
    within = torch.arange(plan.num_tokens, device=device) - torch.repeat_interleave(
        query_starts[:-1], counts, output_size=plan.num_tokens
    )
    positions = rows.num_computed[token_rows] + within
    slots = [
        table[token_rows, positions // block_size].long() * block_size + positions % block_size for table in rows.tables
    ]
    batch = Batch(
        query_starts=query_starts,
        lengths=computed + counts,
        lengths_for_angles=rows.lengths_for_angles[token_rows],
        tables=[table[row_ids, :max_blocks] for table in rows.tables],
        slots=slots,
        kv=kv,
    )
    count = plan.num_sampling
    return StepInputs(
        input_ids=rows.tokens[token_rows, positions].long(),
        positions=positions,
        batch=batch,
        rows=row_ids,
        sampling_rows=row_ids[:count],
        sampling_indices=query_starts[1 : count + 1] - 1,
        sampling_positions=batch.lengths[:count],
    )
