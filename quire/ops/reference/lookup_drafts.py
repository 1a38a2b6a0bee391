"""lookup_drafts: what followed when a sequence said the same before (prompt lookup, n-gram drafts).

Among all places of a row whose tokens, up to and with that place, agree with its last ones: the one where the most
agree, up to `most`, and of several the latest. At least `fewest` must agree. What followed there is the draft; where
that runs into the end of the row it goes round: the row is repeating itself.
"""

from torch import Tensor

from quire.ops.step_tensors import RowStates


def lookup_drafts(
    states: RowStates, rows: Tensor, ready: Tensor, may_draft: Tensor, fewest: int, most: int, count: int
) -> None:
    for row in rows.tolist():
        length = int(states.num_computed[row]) + 1
        known = states.tokens[row, :length].tolist()
        best, place = 0, 0
        for end in range(length - 1):
            agree = 0
            while agree < most and agree <= end and known[end - agree] == known[length - 1 - agree]:
                agree += 1
            if agree >= max(best, fewest):
                best, place = agree, end
        found = count if best and bool(may_draft[row]) else 0
        period = length - 1 - place
        for number in range(found):
            if length + number < states.tokens.shape[1]:
                states.tokens[row, length + number] = known[place + 1 + number % period]
        ready[row] = found
