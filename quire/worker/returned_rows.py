"""What the last stage of a pipeline tells the first one of rows whose drafts it has verified: how far each has come,
its new tokens, and the drafts that stand behind them.

The first stage proposes nothing itself. What has been said lately, which drafts are looked up in, it would know some
steps later than the last one does.
"""

import torch
from torch import Tensor

from quire.core.plan import StepPlan
from quire.ops.step_tensors import RowStates
from quire.ops.upload import upload


def first_places(plan: StepPlan, lengths: Tensor) -> Tensor:
    """int64 [sampling rows]: where the first token that a step draws for each row stands; `lengths` are those of the
    rows once it has run, if all drafts are right."""
    return lengths - upload(plan.num_drafts, torch.int64, lengths.device) if plan.num_drafts else lengths


def returned_width(most_drafts: int) -> int:
    """Numbers that are told of each row, whatever its drafts were."""
    return 2 + 2 * most_drafts


def returned_rows(states: RowStates, rows: Tensor, begins: Tensor, most_drafts: int) -> Tensor:
    """int64 [rows, width]: the row's length, then its tokens from where it `begins`: at most one more than its drafts
    were, and the drafts for its next step."""
    tokens = states.tokens[rows[:, None], _places(states, begins, returned_width(most_drafts) - 1)]
    return torch.cat((states.num_computed[rows][:, None], tokens.long()), 1)


def take_rows(states: RowStates, rows: Tensor, begins: Tensor, told: Tensor) -> None:
    """What was told becomes what is known about these rows."""
    states.num_computed.index_copy_(0, rows, told[:, 0])
    places = _places(states, begins, told.shape[1] - 1)
    states.tokens.index_put_((rows[:, None], places), told[:, 1:].to(torch.int32))


def _places(states: RowStates, begins: Tensor, count: int) -> Tensor:
    """int64 [rows, count]; those that rows have no room for are the last, which is no token's."""
    places = begins[:, None] + torch.arange(count, device=begins.device)
    return places.clamp(max=states.tokens.shape[1] - 1)
