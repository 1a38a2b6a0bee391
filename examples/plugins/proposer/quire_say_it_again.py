"""A proposer for quire's speculative decoding: the last token again and again, as some answers go."""

import torch
from torch import Tensor

from quire.config.speculation import Speculation
from quire.ops.step_tensors import RowStates
from quire.sampling.mode import SamplingMode
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.proposer import Proposer

QUIRE_PLUGIN_API = 1


class SayItAgain(Proposer):
    """Answers stay the same whatever is proposed: a draft is taken where it is what the sampler draws there."""

    can_be_captured = True

    def __init__(self, asked: Speculation, states: RowStates, drafts: DraftRows) -> None:
        self._count = asked.num_speculative_tokens
        self._states = states
        self._drafts = drafts

    def propose(self, rows: Tensor, count: int, mode: SamplingMode) -> None:
        """Write drafts behind the last known token of each row, and how many there are."""
        tokens, known = self._states.tokens, self._states.num_computed[rows]
        last, most = tokens[rows, known], tokens.shape[1] - 1
        for number in range(1, self._count + 1):
            tokens.index_put_((rows, (known + number).clamp(max=most)), last)
        ready = self._drafts.may_draft[rows].to(torch.int64) * self._count
        self._drafts.ready.index_copy_(0, rows, ready)
