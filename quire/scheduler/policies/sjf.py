"""sjf: the shortest predicted job first."""

from quire.core.sequence import Sequence
from quire.scheduler.policies.base import Policy
from quire.scheduler.prediction import LengthPredictor
from quire.scheduler.queue import Rank


class ShortestJobFirst(Policy):
    """Orders by the tokens a sequence is predicted to still need, minus what it has earned by waiting.

    A job of predicted length L that arrives at time t stands like one of length L + t × `tokens_per_second`:
    later arrivals fall behind it one by one, so that nothing starves.
    """

    def __init__(self, tokens_per_second: float) -> None:
        super().__init__()
        self._tokens_per_second = tokens_per_second
        self._predictor = LengthPredictor()

    def rank(self, seq: Sequence) -> Rank:
        to_compute = max(0, len(seq.tokens) - seq.num_computed)
        to_come = self._predictor.remaining(seq.num_output, seq.max_total - seq.num_prompt)
        return (to_compute + to_come + seq.arrival * self._tokens_per_second,)

    def finished(self, seq: Sequence) -> None:
        if seq.request.pooling is None:
            self._predictor.observe(seq.num_output)
