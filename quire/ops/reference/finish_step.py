"""finish_step: what a step computed and sampled becomes what is known about its rows."""

import torch
from torch import Tensor

from quire.ops.step_tensors import RowStates


def finish_step(states: RowStates, rows: Tensor, lengths: Tensor, tokens: Tensor | None) -> None:
    states.num_computed.index_copy_(0, rows, lengths)
    if tokens is not None:
        sampled = len(tokens)
        states.tokens.index_put_((rows[:sampled], lengths[:sampled]), tokens.to(torch.int32))
