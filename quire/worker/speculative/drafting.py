"""Drafting: speculative decoding in a worker. Verifies the drafts of a step, and has the next ones proposed.

All of it is on the device: the next step verifies drafts that the host never sees, and reads which were right one step
late.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quire.config.resolved import StepLimits
from quire.config.speculation import Speculation
from quire.core.plan import Admission, StepPlan
from quire.kvcache.storage import KVStorage
from quire.layers.batch import Batch, Taps
from quire.models.heads.medusa_heads import MedusaHeads
from quire.ops.functional import Attend, paged_attention
from quire.ops.step_tensors import RowStates
from quire.ops.upload import upload
from quire.parallel.group import Group
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import Sampler
from quire.sampling.verification import (
    DraftLayout,
    VerifiedTokens,
    accept_places,
    draw_places,
    empty_places,
    even_layout,
    uneven_layout,
)
from quire.worker.core_memory import CoreMemory
from quire.worker.core_model import CoreStep, Floats
from quire.worker.rank_sampler import RankSampler
from quire.worker.speculative.draft_model import DraftModel, DraftModelProposer
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.head import HeadProposer
from quire.worker.speculative.loaded_head import LoadedHead
from quire.worker.speculative.lookups import make_proposer
from quire.worker.speculative.medusa import MedusaProposer
from quire.worker.speculative.proposer import Proposer
from quire.worker.speculative.suffix import SuffixProposer
from quire.worker.speculative.unwritten_features import UnwrittenFeatures
from quire.worker.stage_stream import StageStream


class Drafting:
    """Of one worker."""

    def __init__(
        self,
        asked: Speculation,
        limits: StepLimits,
        states: RowStates,
        sampler: Sampler,
        memory: CoreMemory | None = None,
        ranks: Group | None = None,
        drafter: DraftModel | LoadedHead | None = None,
        group: int = 0,
        attend: Attend = paged_attention,
        large_logits: Callable[[Tensor], Tensor] | None = None,
        block_size: int = 1,
        stream: StageStream | None = None,
    ) -> None:
        """`memory` is that of a worker to go on from; `ranks` are those that compute the model together. They come to
        the same drafts where these follow from tokens alone; others the first rank draws for all.

        `drafter` is the model or head that drafts, which uses the tables of `group`, whose blocks are of `block_size`,
        and attends by `attend`; `large_logits` makes the large model's logits. `stream` is what enters the last stage
        of a pipeline, on whose stages several steps are in flight.
        """
        self._states = states
        self._sampler = sampler
        self._ranks = ranks
        device = states.tokens.device
        self.rows = (
            DraftRows.empty(limits.max_num_seqs, device)
            if memory is None
            else DraftRows(torch.from_numpy(memory.ready), torch.from_numpy(memory.may_draft))
        )
        draws = sampler if ranks is None else RankSampler(sampler, ranks)
        self._proposer: Proposer
        if drafter is None:
            self._proposer = make_proposer(asked, states, self.rows)
            if isinstance(self._proposer, SuffixProposer) and memory is not None and memory.answers is not None:
                self._proposer.go_on_from(memory.answers)
        elif isinstance(drafter, DraftModel):
            self._proposer = DraftModelProposer(drafter, limits, states, group, self.rows, draws, attend)
        elif isinstance(drafter.module, MedusaHeads):
            self._proposer = MedusaProposer(drafter, states, group, self.rows, block_size, ranks)
        else:
            assert large_logits is not None, "a head may share the large model's"
            shared = (states, group, self.rows, draws, attend, large_logits)
            self._proposer = HeadProposer(drafter, limits, *shared)
        self._unwritten = UnwrittenFeatures(self._proposer.keep)
        self._drafting: set[int] = set()
        """Rows that may have drafts."""
        self._last_position = limits.max_model_len - 1
        self._stream = stream
        self._is_read_first = device.type != "cuda" and ranks is None and stream is None
        """Whether a step is read before the next is planned, so that the host can say how many drafts that has."""

    @property
    def can_be_captured(self) -> bool:
        """Whether what follows a step may be part of its graph."""
        return self._proposer.can_be_captured

    @property
    def needs_hidden(self) -> bool:
        """Whether it wants to be told the hidden states of all tokens."""
        return self._proposer.needs_hidden

    def tapped(self, batch: Batch) -> Batch:
        """The batch with what is to be kept of the residual stream."""
        if not self._proposer.taps:
            return batch
        return replace(batch, taps=Taps(self._proposer.taps) if self._stream is None else self._stream.taps())

    def keep(self, slots: Sequence[Tensor], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """A step was computed; see `Proposer.keep`."""
        self._unwritten.write()
        self._proposer.keep(slots, hidden, taps)

    @property
    def keep_later(self) -> Callable[[CoreStep, Floats, Floats], None] | None:
        """The same for a step of numpy's arrays; None where nothing is kept."""
        return self._unwritten.add if self._proposer.needs_hidden or self._proposer.taps else None

    def skip(self, plan: StepPlan) -> None:
        """A step is computed behind which nothing is proposed."""
        self._proposer.skip(plan)

    def storages(self) -> list[KVStorage]:
        """Of KV that is not the large model's."""
        return self._proposer.storages()

    def admit(self, admission: Admission) -> None:
        self._proposer.admit(admission)
        if self.rows.admit(admission):
            self._drafting.add(admission.row)
        else:
            self._drafting.discard(admission.row)

    def go_on_with(self, admission: Admission) -> None:
        """A row has this sequence already, and maybe drafts."""
        self._proposer.admit(admission)

    def release(self, row: int) -> None:
        self._proposer.release(row)

    def reset(self) -> None:
        """All rows are forgotten."""
        self._drafting.clear()
        self._proposer.reset()

    def move(self, plan: StepPlan) -> None:
        """What is kept beside the KV of the large model moves with it."""
        if plan.swap_out or plan.swap_in or plan.copies:
            self._unwritten.write()
        self._proposer.move(plan)

    def prepare(self, plan: StepPlan, drafts: int) -> None:
        """A step of equally many drafts in each row, or without any, is about to be launched as a graph."""
        if drafts:
            self._proposer.prepare(plan)
        else:
            self._proposer.skip(plan)

    def positions(self, positions: Tensor) -> Tensor:
        """Those of drafts that a sequence has no room for are its last: learned positions have no others."""
        return positions.clamp(max=self._last_position)

    def verify(
        self, logits: Tensor, rows: Tensor, lengths: Tensor, plan: StepPlan, mode: SamplingMode
    ) -> VerifiedTokens:
        """What the sampling rows of a plan get, by the logits of their last tokens and drafts."""
        num_drafts = plan.num_drafts or [0] * plan.num_sampling
        verified = self._verify(logits, uneven_layout(rows, lengths, num_drafts), mode)
        if not self._proposer.costs_time and (plan.num_wanted or not self._is_read_first):
            self._proposer.propose(rows, plan.num_wanted, mode)
            return verified
        self.rows.ready.index_fill_(0, rows, 0)
        if not plan.num_wanted:
            self._proposer.skip(plan)
            return verified
        self._proposer.follow(plan)
        drafting = [row for row in plan.rows[: plan.num_sampling] if row in self._drafting]
        if drafting:
            some = rows if len(drafting) == len(rows) else upload(drafting, torch.int64, rows.device)
            self._proposer.propose(some, plan.num_wanted, mode)
        return verified

    def verify_even(
        self, logits: Tensor, rows: Tensor, lengths: Tensor, drafts: int, mode: SamplingMode
    ) -> VerifiedTokens:
        """What rows get that have equally many drafts."""
        verified = self._verify(logits, even_layout(rows, lengths, drafts), mode)
        self._proposer.propose(rows, drafts, mode)
        return verified

    def go_without(self, rows: Tensor, mode: SamplingMode) -> None:
        """Rows have got a token without drafts: they have new ones where these cost nothing, else none."""
        if self._proposer.costs_time:
            self.rows.ready.index_fill_(0, rows, 0)
        else:
            self._proposer.propose(rows, 0, mode)

    def ready(self, rows: Tensor) -> Tensor | None:
        """How many drafts these rows have for the next step, where that is known before it is planned."""
        return self.rows.ready[rows] if self._is_read_first else None

    def _verify(self, logits: Tensor, layout: DraftLayout, mode: SamplingMode) -> VerifiedTokens:
        if self._ranks is not None and not self._ranks.is_first:
            drawn = empty_places(layout)
        else:
            drawn = draw_places(self._sampler, self._states, self.rows.ready, logits, layout, mode)
        if self._ranks is not None:
            self._ranks.broadcast(drawn.tokens)
            if mode.cuts_drafts:  # only the first rank knows what grammars rule out
                self._ranks.broadcast(self.rows.ready)
        return accept_places(self._states, self.rows.ready, layout, drawn)
