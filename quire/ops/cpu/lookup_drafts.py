"""lookup_drafts on a CPU's own memory: only where the last token stands the ones before are compared. No torch."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from quire.ops.step_tensors import RowStates

Integers = NDArray[np.int64]
Tokens = NDArray[np.int32]
_NOTHING = -1
"""Stands in recent texts where there is no token."""


def lookup_in_memory(
    tokens: Tokens,
    computed: Integers,
    rows: Integers,
    ready: Integers,
    may_draft: NDArray[np.bool_],
    fewest: int,
    most: int,
    count: int,
    recent: Tokens | None = None,
) -> None:
    """As `lookup_drafts` does it; `tokens` and `computed` are those of all rows."""
    for row in rows.tolist():
        length = int(computed[row]) + 1
        found = _drafts(tokens[row, :length], fewest, most, count, recent) if may_draft[row] else tokens[row, :0]
        room = tokens[row, length : length + len(found)]
        room[:] = found[: len(room)]
        ready[row] = len(found)


def _drafts(known: Tokens, fewest: int, most: int, count: int, recent: Tokens | None) -> Tokens:
    last = len(known) - 1
    agree, place = _best_place(known, known, last, fewest, most)
    found = known[place + 1 + np.arange(count) % (last - place)] if agree else known[:0]
    if recent is None or agree >= most:
        return found
    # texts lie one behind the other, each behind a place without a token, so that nothing agrees across them
    texts = recent.reshape(-1)
    _, place = best = _best_place(texts, known, len(texts) - 1, max(fewest, agree + 1), most)
    if not best[0]:
        return found
    behind = texts[place + 1 : place + 1 + count]
    ends = np.flatnonzero(behind == _NOTHING)
    return behind[: ends[0]] if len(ends) else behind


def _best_place(text: Tokens, known: Tokens, end: int, fewest: int, most: int) -> tuple[int, int]:
    """How many of the last tokens agree at the latest of the best places before `end`, and which that is; 0: none."""
    last = len(known) - 1
    if last + 1 < fewest or end < fewest:
        return 0, 0
    places = np.flatnonzero(text[fewest - 1 : end] == known[last]) + fewest - 1
    if text is not known:
        places = places[text[places + 1] != _NOTHING]
    agree = 1
    while agree < min(most, last + 1) and len(places):
        long_enough = places[places >= agree]
        same = long_enough[text[long_enough - agree] == known[last - agree]]
        if not len(same):
            break
        places, agree = same, agree + 1
    return (agree, int(places[-1])) if len(places) and agree >= fewest else (0, 0)


def lookup_drafts(
    states: "RowStates",
    rows: "Tensor",
    ready: "Tensor",
    may_draft: "Tensor",
    fewest: int,
    most: int,
    count: int,
    recent: "Tensor | None" = None,
) -> None:
    """The same memory, as tensors."""
    of_all_rows = (states.tokens.numpy(), states.num_computed.numpy())
    texts = None if recent is None else recent.numpy()
    lookup_in_memory(*of_all_rows, rows.numpy(), ready.numpy(), may_draft.numpy(), fewest, most, count, texts)
