"""lookup_drafts on a CPU's own memory: only where the last token stands the ones before are compared. No torch."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from quire.ops.step_tensors import RowStates

Integers = NDArray[np.int64]


def lookup_in_memory(
    tokens: NDArray[np.int32],
    computed: Integers,
    rows: Integers,
    ready: Integers,
    may_draft: NDArray[np.bool_],
    fewest: int,
    most: int,
    count: int,
) -> None:
    """As `lookup_drafts` does it; `tokens` and `computed` are those of all rows."""
    for row in rows.tolist():
        length = int(computed[row]) + 1
        place = _latest_longest(tokens[row, :length], fewest, most) if may_draft[row] else None
        if place is None:
            ready[row] = 0
            continue
        room = tokens[row, length : length + count]
        room[:] = tokens[row, place + 1 + np.arange(len(room)) % (length - 1 - place)]
        ready[row] = count


def _latest_longest(known: NDArray[np.int32], fewest: int, most: int) -> int | None:
    """The place before the last whose tokens, up to it, agree best with the last ones; None: with too few of them."""
    last = len(known) - 1
    if last < fewest:
        return None
    [places] = (known[fewest - 1 : last] == known[last]).nonzero()
    places += fewest - 1
    for agree in range(1, most):
        long_enough = places[places >= agree]
        same = long_enough[known[long_enough - agree] == known[last - agree]]
        if not len(same):
            if agree < fewest:
                return None
            break
        places = same
    return int(places[-1]) if len(places) else None


def lookup_drafts(
    states: "RowStates", rows: "Tensor", ready: "Tensor", may_draft: "Tensor", fewest: int, most: int, count: int
) -> None:
    """The same memory, as tensors."""
    of_all_rows = (states.tokens.numpy(), states.num_computed.numpy())
    lookup_in_memory(*of_all_rows, rows.numpy(), ready.numpy(), may_draft.numpy(), fewest, most, count)
