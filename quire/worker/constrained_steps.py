"""ConstrainedSteps: keeps grammars in step with a device that is ahead of the host.

The mask of a token needs the token before. On a GPU that one is still being computed when the next step is launched:
its forward is given to the device first, and only then the host waits for the last step's tokens, makes the masks and
launches the drawing. Steps without constrained rows never wait.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from quire.core.plan import Admission, StepPlan
from quire.ops.cpu.apply_token_bitmask import apply_token_bitmask
from quire.ops.step_tensors import RowStates
from quire.ops.upload import upload
from quire.sampling.grammar.masks import is_constrained
from quire.sampling.grammar.progress import Constrained, jump
from quire.sampling.mode import num_reported
from quire.sampling.state import SamplingState
from quire.worker.running_step import RunningStep
from quire.worker.speculative.draft_rows import DraftRows


class ConstrainedSteps:
    """Of one worker."""

    def __init__(self, sampling: SamplingState, states: RowStates, max_model_len: int, *, can_jump: bool) -> None:
        """`can_jump`: a step is read before the next is planned, so that forced tokens can be part of its result."""
        self._sampling = sampling
        self._states = states
        self._max_len = max_model_len
        self._can_jump = can_jump
        self._unread: RunningStep | None = None
        """The last step with constrained rows, while nobody has told their constraints its tokens."""
        self._jumpers: dict[int, int] = {}
        """By row that may jump: tokens, prompt included, that it may have."""

    def admit(self, admission: Admission) -> None:
        params = admission.params
        # logprobs are the model's for each token, so each needs a step of its own
        if self._can_jump and is_constrained(params) and num_reported(params) is None:
            most = self._max_len if params.max_tokens is None else admission.num_prompt + params.max_tokens
            self._jumpers[admission.row] = min(self._max_len, most)

    def release(self, row: int) -> None:
        self._jumpers.pop(row, None)

    def reset(self) -> None:
        """All rows are forgotten."""
        self._unread = None
        self._jumpers.clear()

    def foresee(self, rows: Sequence[int]) -> None:
        """A step that draws for these rows is about to be computed: where all tokens are known, its masks are made
        meanwhile.
        """
        if self._can_jump and self._sampling.grammars.is_active:
            self._sampling.grammars.foresee(rows)

    def bind(self, rows: Sequence[int]) -> Constrained:
        """Masks for the tokens that are about to be drawn for these rows; returns those that are constrained."""
        grammars = self._sampling.grammars
        if not grammars.is_active:
            return ()
        if self._unread is not None:
            self._unread.settle()
            self._unread = None
        return grammars.bind(rows)

    def bind_drafts(self, plan: StepPlan, constrained: Constrained, logits: Tensor, lengths: Sequence[int]) -> None:
        """A step verifies drafts: `logits` behind each draft of a constrained row are bound by what may follow it.

        `logits` are those of the sampling rows, place after place; `lengths` are tokens of rows, their drafts included.
        Only where every token before is known, drafts too: where steps are read before the next is planned.
        """
        if not self._can_jump or not plan.num_drafts:
            return
        firsts = [0, *accumulate(1 + count for count in plan.num_drafts)]
        for place, constraint in constrained:
            row, count = plan.rows[place], plan.num_drafts[place]
            if not count:
                continue
            drafts = self._states.tokens[row, lengths[row] - count : lengths[row]].tolist()
            masks = self._sampling.grammars.bind_drafts(row, constraint, drafts)
            of_row = logits[firsts[place] : firsts[place + 1]]
            bound = of_row.float()  # the same memory, where that is what they are
            apply_token_bitmask(bound, masks, torch.arange(1 + count))
            of_row.copy_(bound)

    def drawn(
        self, plan: StepPlan, running: RunningStep, lengths: Sequence[int], drafts: DraftRows | None = None
    ) -> None:
        """A step was launched; `lengths` are the tokens each row has computed with it, if all its drafts were right.

        `drafts` are those that rows have for the next step: of constrained ones as many are left as may follow.
        """
        if not running.constrained:
            return
        if not self._can_jump:
            self._unread = running
            return
        progress = running.settle()
        known: dict[int, int] = {}
        """By row: its tokens but for forced ones."""
        for place, constraint in running.constrained:
            row, granted = plan.rows[place], plan.num_drafts[place] if plan.num_drafts else 0
            known[row] = lengths[row] - granted + progress.taken[place]
            jump(place, constraint, progress, self._jumpers.get(row, known[row]) - known[row])
            if drafts is not None and (ready := int(drafts.ready[row])):
                # forced tokens have taken the place of drafts
                count = 0 if place in progress.forced else ready
                behind = self._states.tokens[row, known[row] : known[row] + count].tolist()
                drafts.ready[row] = constraint.num_allowed(behind)
        if progress.forced:
            self._write([(plan.rows[place], tokens) for place, tokens in progress.forced.items()], known)

    def _write(self, forced: list[tuple[int, list[int]]], known: Mapping[int, int]) -> None:
        """The next step computes them, like any tokens that are known and not computed."""
        device = self._states.tokens.device
        places = [(row, known[row] + number, token) for row, tokens in forced for number, token in enumerate(tokens)]
        rows, positions, values = upload(places, torch.int64, device).unbind(1)
        self._states.tokens.index_put_((rows, positions), values.to(torch.int32))
        self._sampling.append_several(forced)
