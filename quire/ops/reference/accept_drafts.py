"""accept_drafts: which drafts of a step become tokens of their rows.

At every place a token was drawn as if there were no drafts: from the same logits, with the noise of its position. As
long as drafts are what was drawn, the logits behind them are those of a step of its own; the first that is not, and
all behind it, are as if they had never been. So a row's tokens are those it would have without drafts, whoever made
these and however. Where drafts are certain guesses this is rejection sampling: a draft is taken with just the
probability that the model gives it, and what comes instead has the distribution of the rest.
"""

import torch
from torch import Tensor

from quire.ops.step_tensors import RowStates


def accept_drafts(
    states: RowStates, rows: Tensor, lengths: Tensor, granted: Tensor, drawn: Tensor, ready: Tensor
) -> tuple[Tensor, Tensor]:
    verified = torch.minimum(granted, ready[rows])
    counts = torch.empty_like(rows)
    for place, (row, length, drafts) in enumerate(
        zip(rows.tolist(), (lengths - granted).tolist(), verified.tolist(), strict=True)
    ):
        proposed = states.tokens[row, length : length + drafts].tolist()
        count = 1
        for draft, token in zip(proposed, drawn[place].tolist(), strict=False):
            if draft != token:
                break
            count += 1
        room = states.tokens[row, length : length + count]
        room.copy_(drawn[place, : len(room)])
        states.num_computed[row] = length + count - 1
        counts[place] = count
    return counts, verified
