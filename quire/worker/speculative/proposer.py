"""Proposer: whoever writes drafts behind the last token of a row. One file each."""

from typing import Protocol

from torch import Tensor

from quire.config.speculation import Speculation
from quire.ops.step_tensors import RowStates
from quire.worker.speculative.draft_rows import DraftRows


class Proposer(Protocol):
    """It runs on the device behind every step that samples, within the same graph, and never waits."""

    def propose(self, rows: Tensor) -> None:
        """New drafts for these rows, int64 [n], whose tokens are known up to where they are computed, and one more."""


def make_proposer(asked: Speculation, states: RowStates, drafts: DraftRows) -> Proposer:
    """The one of the method asked for."""
    from quire.worker.speculative.ngram import NgramProposer

    return NgramProposer(asked, states, drafts)
