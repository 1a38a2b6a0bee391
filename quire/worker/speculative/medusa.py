"""MedusaProposer: tokens further ahead, each by a head of its own, from what the large model made of the last token.
The likeliest of each head are one chain of drafts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from quire.core.plan import StepPlan
from quire.kvcache.storage import KVStorage
from quire.models.heads.medusa_heads import MedusaHeads
from quire.ops.functional import argmax
from quire.ops.step_tensors import RowStates
from quire.parallel.group import Group
from quire.sampling.mode import SamplingMode
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.loaded_head import LoadedHead
from quire.worker.speculative.proposer import Proposer


class MedusaProposer(Proposer):
    """Of one worker. `states` are those of the large model's rows, of whose tables group `group` keeps every token."""

    can_be_captured = True
    costs_time = True
    needs_hidden = True

    def __init__(
        self,
        loaded: LoadedHead,
        states: RowStates,
        group: int,
        rows: DraftRows,
        block_size: int,
        ranks: Group | None = None,
    ) -> None:
        """`ranks` are those that compute the large model together, if there are several."""
        assert isinstance(loaded.module, MedusaHeads), "it has a head for each place"
        self._heads, self._features = loaded.module, loaded.features
        self._states = states
        self._group = group
        self._rows = rows
        self._block_size = block_size
        self._ranks = ranks

    def storages(self) -> list[KVStorage]:
        return [self._features.storage]

    def move(self, plan: StepPlan) -> None:
        self._features.storage.move(plan.swap_out, plan.swap_in, plan.copies)

    def keep(self, slots: Sequence[Tensor], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        self._features.write(slots[self._group], hidden)

    def propose(self, rows: Tensor, count: int, mode: SamplingMode) -> None:
        tokens = self._states.tokens
        computed = self._states.num_computed[rows].clamp(min=1)  # the spare row of a graph has none
        place = computed - 1
        blocks = self._states.tables[self._group][rows, place // self._block_size].long()
        feature = self._features.read(blocks * self._block_size + place % self._block_size)
        logits = [self._heads.logits(number, feature) for number in range(count)]  # all ranks have a part in them
        if self._ranks is None or self._ranks.is_first:
            found = torch.stack([argmax(each, None)[0].long() for each in logits])
        else:
            found = torch.empty((count, len(rows)), dtype=torch.int64, device=feature.device)
        if self._ranks is not None:
            found = self._ranks.broadcast(found)
        for number, likeliest in enumerate(found):
            positions = (computed + number + 1).clamp(max=tokens.shape[1] - 1)
            tokens.index_put_((rows, positions), likeliest.to(torch.int32))
        self._rows.ready.index_copy_(0, rows, self._rows.may_draft[rows].to(torch.int64) * count)
