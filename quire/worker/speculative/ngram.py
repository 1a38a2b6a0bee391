"""NgramProposer: what followed when the sequence said the same before (prompt lookup). On the device."""

from torch import Tensor

from quire.config.speculation import Speculation
from quire.ops.functional import lookup_drafts
from quire.ops.step_tensors import RowStates
from quire.sampling.mode import SamplingMode
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.proposer import Proposer


class NgramProposer(Proposer):
    """Costs a look at the sequence's tokens, and pays where answers repeat parts of their prompts."""

    can_be_captured = True

    def __init__(self, asked: Speculation, states: RowStates, drafts: DraftRows) -> None:
        self._asked = asked
        self._states = states
        self._drafts = drafts

    def propose(self, rows: Tensor, count: int, mode: SamplingMode) -> None:
        """As many as there may ever be: more cost nothing."""
        lookup_drafts(
            self._states,
            rows,
            self._drafts.ready,
            self._drafts.may_draft,
            fewest=self._asked.prompt_lookup_min,
            most=self._asked.prompt_lookup_max,
            count=self._asked.num_speculative_tokens,
        )
