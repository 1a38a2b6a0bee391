"""best-of: several sequences are drawn, the most likely are returned. Plain numbers, no torch."""

import math
from collections.abc import Sequence

from quire.core.errors import InvalidRequest


def best_of(cumulative_logprobs: Sequence[float], n: int) -> list[int]:
    """Indices of the `n` sequences of the highest cumulative log probability, best first; the earlier wins a tie.

    A sequence without a real score (NaN, from a failed step) comes last.
    """
    if not 1 <= n <= len(cumulative_logprobs):
        raise InvalidRequest(f"n is {n}; it must be 1 to best_of, which is {len(cumulative_logprobs)}", field="n")
    scores = [-math.inf if math.isnan(score) else score for score in cumulative_logprobs]
    # a failed sequence comes behind one that is merely impossible
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], math.isnan(cumulative_logprobs[i]), i))
    return order[:n]
