"""SuffixProposer: what followed the longest of the sequence's last words that were said before, by itself or in recent
answers. On the device.

A suffix tree finds such a place by walking; a device finds it by reading everything at once, which a few recent answers
take no longer for, and no step of delay.
"""

import torch
from torch import Tensor

from quire.config.speculation import Speculation
from quire.core.plan import Admission
from quire.ops.functional import lookup_drafts
from quire.ops.step_tensors import RowStates
from quire.sampling.mode import SamplingMode
from quire.worker.speculative.core_drafting import FEWEST_AGREEING
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.proposer import Proposer
from quire.worker.speculative.recent_answers import LONGEST_ANSWER, NO_TOKEN, RecentAnswers


class SuffixProposer(Proposer):
    """Pays where answers repeat parts of their prompts, of themselves or of each other, as those of agents do."""

    can_be_captured = True

    def __init__(self, asked: Speculation, states: RowStates, drafts: DraftRows) -> None:
        self._asked = asked
        self._states = states
        self._drafts = drafts
        device = states.tokens.device
        texts, length = asked.suffix_decoding_max_cached_requests, min(LONGEST_ANSWER, states.tokens.shape[1])
        self._recent = torch.full((texts, 1 + length), NO_TOKEN, dtype=torch.int32, device=device)
        """Answers, each behind a place without a token."""
        self._places = torch.arange(length, device=device)
        self._next = 0
        self._prompts: dict[int, int] = {}
        """By row: where its answer begins."""

    def go_on_from(self, answers: RecentAnswers) -> None:
        """Remember what a worker has heard whose memory this one takes over."""
        for place, text in enumerate(answers.texts):
            said = text[: len(self._places)]
            self._recent[place, 1 : 1 + len(said)] = torch.from_numpy(said)
        self._next = answers.next_place

    def propose(self, rows: Tensor, count: int, mode: SamplingMode) -> None:
        """As many as there may ever be: more cost nothing."""
        lookup_drafts(
            self._states,
            rows,
            self._drafts.ready,
            self._drafts.may_draft,
            fewest=FEWEST_AGREEING,
            most=self._asked.suffix_decoding_max_tree_depth,
            count=self._asked.num_speculative_tokens,
            recent=self._recent,
        )

    def admit(self, admission: Admission) -> None:
        if admission.pooling is None:
            self._prompts[admission.row] = admission.num_prompt

    def reset(self) -> None:
        """What was being said is not remembered."""
        self._prompts.clear()

    def release(self, row: int) -> None:
        """What it has said is remembered in place of what was said longest ago."""
        begin = self._prompts.pop(row, None)
        if begin is None:
            return
        said = self._states.tokens[row, begin : begin + len(self._places)]
        is_known = self._places[: len(said)] < self._states.num_computed[row] + 1 - begin
        text = self._recent[self._next, 1:]
        text.fill_(NO_TOKEN)
        text[: len(said)] = said.where(is_known, NO_TOKEN)
        self._next = (self._next + 1) % len(self._recent)
