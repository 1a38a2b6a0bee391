"""accept_drafts on a CPU's own memory: a few comparisons of short rows. No torch."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from quire.ops.step_tensors import RowStates

Integers = NDArray[np.int64]


def accept_in_memory(
    tokens: NDArray[np.int32],
    computed: Integers,
    rows: Integers,
    lengths: Integers,
    granted: Integers,
    drawn: NDArray[Any],
    ready: Integers,
) -> tuple[Integers, Integers]:
    """As `accept_drafts` does it; `tokens` and `computed` are those of all rows."""
    begins = lengths - granted
    verified = np.minimum(granted, ready[rows])
    counts = np.ones_like(rows)
    for place in np.flatnonzero(verified).tolist():
        begin, drafts = int(begins[place]), int(verified[place])
        agrees = tokens[rows[place], begin : begin + drafts] == drawn[place, :drafts]
        counts[place] = 1 + (drafts if agrees.all() else int(agrees.argmin()))
    for place, (row, begin, count) in enumerate(zip(rows.tolist(), begins.tolist(), counts.tolist(), strict=True)):
        room = tokens[row, begin : begin + count]
        room[:] = drawn[place, : len(room)]
    computed[rows] = begins + counts - 1
    return counts, verified


def accept_drafts(
    states: "RowStates", rows: "Tensor", lengths: "Tensor", granted: "Tensor", drawn: "Tensor", ready: "Tensor"
) -> "tuple[Tensor, Tensor]":
    """The same memory, as tensors."""
    import torch

    of_all_rows = (states.tokens.numpy(), states.num_computed.numpy())
    of_step = (rows.numpy(), lengths.numpy(), granted.numpy(), drawn.numpy(), ready.numpy())
    counts, verified = accept_in_memory(*of_all_rows, *of_step)
    return torch.from_numpy(counts), torch.from_numpy(verified)
