"""ConstrainedSteps: keeps grammars in step with a device that is ahead of the host.

The mask of a token needs the token before, and those of drafts the drafts. On a GPU they are still being computed when
the next step is launched: its forward is given to the device first, and only then the host waits for the last step's
tokens and for the drafts behind them, makes the masks and launches the drawing. Steps without constrained rows never
wait.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from quire.core.plan import Admission, StepPlan
from quire.ops.functional import mask_logits
from quire.ops.step_tensors import RowStates
from quire.ops.upload import upload
from quire.sampling.grammar.masks import NO_DRAFTS, Drafts, is_constrained
from quire.sampling.grammar.progress import Constrained, jump
from quire.sampling.mode import num_reported
from quire.sampling.state import SamplingState
from quire.worker.running_step import RunningStep
from quire.worker.speculative.draft_copy import DraftCopy
from quire.worker.speculative.draft_rows import DraftRows


class ConstrainedSteps:
    """Of one worker."""

    def __init__(
        self,
        sampling: SamplingState,
        states: RowStates,
        max_model_len: int,
        *,
        can_jump: bool,
        drafts: DraftRows | None = None,
    ) -> None:
        """`can_jump`: a step is read before the next is planned, so that forced tokens can be part of its result.
        `drafts` are those of all rows, where there are any.
        """
        self._sampling = sampling
        self._states = states
        self._max_len = max_model_len
        self._can_jump = can_jump
        self._drafts = drafts
        self._unread: RunningStep | None = None
        """The last step with constrained rows, while nobody has told their constraints its tokens."""
        self._coming: DraftCopy | None = None
        """The drafts of constrained rows in the step that is being launched."""
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
        self._unread = self._coming = None
        self._jumpers.clear()

    def foresee(self, plan: StepPlan) -> None:
        """A step is about to be computed: what its masks depend on is fetched, and where all tokens are known, they are
        made meanwhile.
        """
        grammars = self._sampling.grammars
        self._coming = None
        if not grammars.is_active:
            return
        rows = plan.rows[: plan.num_sampling]
        if plan.num_drafts and self._drafts is not None:
            places = [place for place, _ in grammars.constrained(rows) if plan.num_drafts[place]]
            if places:
                self._coming = DraftCopy(self._states, self._drafts, plan, places)
        if self._can_jump:
            grammars.foresee(rows, self._read_drafts())

    def bind(self, plan: StepPlan, logits: Tensor) -> Constrained:
        """Masks for the tokens that are about to be drawn for the plan's rows from `logits`, of one place after the
        other; returns those that are constrained.

        Where a row verifies drafts, it is the logits that are bound, at each of its places by what may come there.
        """
        grammars = self._sampling.grammars
        if not grammars.is_active:
            return ()
        if self._unread is not None:
            self._unread.settle()
            self._unread = None
        rows = plan.rows[: plan.num_sampling]
        drafts = self._read_drafts()
        bound = grammars.bind(rows, drafts)
        if bound.allowed:
            cut = {rows[place]: count for place, count in bound.allowed.items() if count < len(drafts[place])}
            self._cut_drafts(cut)
            firsts = [0, *accumulate(1 + count for count in plan.num_drafts)]
            places = [firsts[place] + number for place in bound.allowed for number in range(1 + len(drafts[place]))]
            mask_logits(logits, upload(places, torch.int64, logits.device), bound.masks)
        return grammars.constrained(rows)

    def _read_drafts(self) -> Drafts:
        return NO_DRAFTS if self._coming is None else self._coming.read()

    def _cut_drafts(self, counts: Mapping[int, int]) -> None:
        """Of some rows as many are left: what a grammar rules out is no draft, nor is what follows an end."""
        if counts and self._drafts is not None:
            rows, left = upload(list(counts.items()), torch.int64, self._drafts.ready.device).unbind(1)
            self._drafts.ready.index_copy_(0, rows, left)

    def drawn(self, plan: StepPlan, running: RunningStep, lengths: Sequence[int]) -> None:
        """A step was launched; `lengths` are the tokens each row has computed with it, if all its drafts were right.

        Where that is known in time, constrained rows keep as many drafts for the next step as may follow.
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
            if self._drafts is not None and (ready := int(self._drafts.ready[row])):
                # forced tokens have taken the place of drafts
                count = 0 if place in progress.forced else ready
                behind = self._states.tokens[row, known[row] : known[row] + count].tolist()
                self._drafts.ready[row] = constraint.num_allowed(behind)
        if progress.forced:
            self._write([(plan.rows[place], tokens) for place, tokens in progress.forced.items()], known)

    def _write(self, forced: list[tuple[int, list[int]]], known: Mapping[int, int]) -> None:
        """The next step computes them, like any tokens that are known and not computed."""
        device = self._states.tokens.device
        places = [(row, known[row] + number, token) for row, tokens in forced for number, token in enumerate(tokens)]
        rows, positions, values = upload(places, torch.int64, device).unbind(1)
        self._states.tokens.index_put_((rows, positions), values.to(torch.int32))
        self._sampling.append_several(forced)
