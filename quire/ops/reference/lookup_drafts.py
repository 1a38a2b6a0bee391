"""lookup_drafts: what followed when the same was said before (prompt lookup, n-gram and suffix drafts).

Among all places of a row whose tokens, up to and with that place, agree with its last ones: the one where the most
agree, up to `most`, and of several the latest. At least `fewest` must agree. What followed there is the draft; where
that runs into the end of the row it goes round: the row is repeating itself.

Where texts of others are given (`recent`), the row's last tokens are looked for in them too. A place there must agree
in more tokens than the best of the row's own; the last text's wins, and its draft ends with the text.
"""

from collections.abc import Sequence

from torch import Tensor

from quire.ops.step_tensors import RowStates

NOTHING = -1
"""Stands in recent texts where there is no token."""


def lookup_drafts(
    states: RowStates,
    rows: Tensor,
    ready: Tensor,
    may_draft: Tensor,
    fewest: int,
    most: int,
    count: int,
    recent: Tensor | None = None,
) -> None:
    texts = [] if recent is None else recent.tolist()
    for row in rows.tolist():
        length = int(states.num_computed[row]) + 1
        known = states.tokens[row, :length].tolist()
        best, place = _best_place(known, known, length - 1, fewest, most)
        found = [known[place + 1 + number % (length - 1 - place)] for number in range(count)] if best else []
        enough = max(fewest, best + 1)
        for text in texts:
            agree, place = _best_place(text, known, len(text) - 1, enough, most)
            if agree:
                enough, behind = agree, text[place + 1 : place + 1 + count]
                found = behind[: behind.index(NOTHING)] if NOTHING in behind else behind
        found = found if bool(may_draft[row]) else []
        for number, token in enumerate(found):
            if length + number < states.tokens.shape[1]:
                states.tokens[row, length + number] = token
        ready[row] = len(found)


def _best_place(text: Sequence[int], known: Sequence[int], end: int, fewest: int, most: int) -> tuple[int, int]:
    """How many of the last tokens agree at the latest of the best places before `end`, and which that is; 0: none."""
    best, found = 0, 0
    for place in range(end):
        agree = 0
        while agree < min(most, len(known)) and agree <= place and text[place - agree] == known[-1 - agree]:
            agree += 1
        # in a text of others something must follow
        if agree >= max(best, fewest) and text[place + 1] != NOTHING:
            best, found = agree, place
    return best, found
