"""From a plan to the tensors of a step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quire.core.pasts import Pasts
from quire.core.plan import StepPlan
from quire.layers.batch import Batch, KVLayer
from quire.ops.functional import Attend, paged_attention, step_inputs
from quire.ops.step_tensors import StepTensors
from quire.ops.upload import upload
from quire.worker.rows import Rows


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What a forward takes, and where its samples come from and go to."""

    input_ids: Tensor  # [tokens]
    positions: Tensor  # [tokens]
    batch: Batch
    rows: Tensor  # [sequences]
    sampling_rows: Tensor  # [samples]
    sampling_indices: Tensor | None  # [samples]: which hidden states are sampled from, drafts' too; None: all
    sampling_positions: Tensor  # [samples]: where the sampled token will stand, behind all drafts

    @property
    def sampled_tokens(self) -> Tensor | None:
        """Which tokens of the step are sampled from, whether or not others come out of the model; None: all."""
        return self.sampling_indices if self.batch.output_rows is None else self.batch.output_rows


def make_batch(
    step: StepTensors,
    kv: list[KVLayer],
    output_rows: Tensor | None = None,
    prompts: range = range(0),
    attend: Attend = paged_attention,
    pasts: Pasts | None = None,
) -> Batch:
    return Batch(
        query_starts=step.query_starts,
        lengths=step.lengths,
        lengths_for_angles=step.lengths_for_angles,
        tables=step.tables,
        slots=step.slots,
        kv=kv,
        output_rows=output_rows,
        prompts=prompts,
        pasts=pasts,
        attend=attend,
    )


def _with_drafts(plan: StepPlan) -> list[int]:
    """Of each sampling row its last known token and its drafts, by where they stand in the step."""
    found: list[int] = []
    end = 0
    for count, drafts in zip(plan.counts, plan.num_drafts, strict=False):
        end += count
        found.extend(range(end - 1 - drafts, end))
    return found


def make_inputs(
    plan: StepPlan,
    rows: Rows,
    kv: list[KVLayer],
    block_size: int,
    max_blocks: int,
    prompts: range,
    *,
    all_hidden: bool,
    pasts: Pasts | None = None,
    attend: Attend = paged_attention,
) -> StepInputs:
    """`max_blocks` bounds the blocks of the longest sequence in the step, so that tables can be cut to it.

    `prompts` are the tokens of prompts, `pasts` tells rows that have computed tokens before. Without `all_hidden`,
    hidden states come back only where something is sampled.
    """
    step = step_inputs(plan.rows, plan.counts, rows.states, block_size=block_size, max_blocks=max_blocks)
    samples = plan.num_sampling
    last_tokens: Tensor | None
    if plan.num_drafts:
        last_tokens = upload(_with_drafts(plan), torch.int64, step.rows.device)
    else:
        last_tokens = None if samples == len(step.positions) else step.query_starts[1 : samples + 1] - 1
    return StepInputs(
        input_ids=step.input_ids,
        positions=step.positions,
        batch=make_batch(step, kv, None if all_hidden else last_tokens, prompts, attend, pasts),
        rows=step.rows,
        sampling_rows=step.rows[:samples],
        sampling_indices=last_tokens if all_hidden else None,
        sampling_positions=step.lengths[:samples],
    )
