"""Drafting: speculative decoding in a worker. Verifies the drafts of a step, and has the next ones proposed.

All of it is on the device: the next step verifies drafts that the host never sees, and reads which were right one step
late.
"""

import torch
from torch import Tensor

from quire.config.resolved import StepLimits
from quire.config.speculation import Speculation
from quire.core.plan import Admission, StepPlan
from quire.ops.step_tensors import RowStates
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import Sampler
from quire.sampling.verification import DraftLayout, VerifiedTokens, even_layout, uneven_layout, verify_drafts
from quire.worker.core_memory import CoreMemory
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.proposer import make_proposer


class Drafting:
    """Of one worker."""

    def __init__(
        self,
        asked: Speculation,
        limits: StepLimits,
        states: RowStates,
        sampler: Sampler,
        memory: CoreMemory | None = None,
    ) -> None:
        """`memory` is that of a worker to go on from."""
        self._states = states
        self._sampler = sampler
        device = states.tokens.device
        self._rows = (
            DraftRows.empty(limits.max_num_seqs, device)
            if memory is None
            else DraftRows(torch.from_numpy(memory.ready), torch.from_numpy(memory.may_draft))
        )
        self._proposer = make_proposer(asked, states, self._rows)
        self._last_position = limits.max_model_len - 1
        self._is_read_first = device.type == "cpu"
        """Whether a step is read before the next is planned, so that the host can say how many drafts that has."""

    def admit(self, admission: Admission) -> None:
        self._rows.admit(admission)

    def positions(self, positions: Tensor) -> Tensor:
        """Those of drafts that a sequence has no room for are its last: learned positions have no others."""
        return positions.clamp(max=self._last_position)

    def verify(
        self, logits: Tensor, rows: Tensor, lengths: Tensor, plan: StepPlan, mode: SamplingMode
    ) -> VerifiedTokens:
        """What the sampling rows of a plan get, by the logits of their last tokens and drafts."""
        num_drafts = plan.num_drafts or [0] * plan.num_sampling
        return self._verify(logits, uneven_layout(rows, lengths, num_drafts), mode)

    def verify_even(
        self, logits: Tensor, rows: Tensor, lengths: Tensor, drafts: int, mode: SamplingMode
    ) -> VerifiedTokens:
        """What rows get that have equally many drafts."""
        return self._verify(logits, even_layout(rows, lengths, drafts), mode)

    def propose(self, rows: Tensor) -> None:
        """Drafts for rows that have got a token without any."""
        self._proposer.propose(rows)

    def ready(self, rows: Tensor) -> Tensor | None:
        """How many drafts these rows have for the next step, where that is known before it is planned."""
        return self._rows.ready[rows] if self._is_read_first else None

    def _verify(self, logits: Tensor, layout: DraftLayout, mode: SamplingMode) -> VerifiedTokens:
        verified = verify_drafts(self._sampler, self._states, self._rows.ready, logits, layout, mode)
        self._proposer.propose(layout.rows)
        return verified
