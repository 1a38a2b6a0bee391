"""HeadProposer: EAGLE, EAGLE-3 and MTP: a head that goes on from what the large model has made of its tokens.

At each place the head reads the large model's feature there and the token behind it, which is known when the place is
computed. Behind the last token it goes on alone: what it made of a place stands for the feature of the next. Its KV
lies in the same blocks as the large model's, at the slots of the features.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quire.config.resolved import StepLimits
from quire.core.pasts import Pasts
from quire.kvcache.storage import KVStorage
from quire.layers.batch import KVLayer
from quire.models.heads.draft_head import DraftHead
from quire.ops.functional import Attend, decode_inputs, step_inputs
from quire.ops.step_tensors import RowStates, StepTensors
from quire.ops.upload import upload
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import Sampler
from quire.spec.cache import LatentCache
from quire.worker.batching import make_batch
from quire.worker.rank_sampler import RankSampler
from quire.worker.recorded import RecordedModel
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.following import FollowingProposer
from quire.worker.speculative.loaded_head import LoadedHead


class HeadProposer(FollowingProposer):
    """Of one worker. `states` are those of the large model's rows, of whose tables group `group` keeps every token."""

    def __init__(
        self,
        loaded: LoadedHead,
        limits: StepLimits,
        states: RowStates,
        group: int,
        rows: DraftRows,
        sampler: Sampler | RankSampler,
        attend: Attend,
        large_logits: Callable[[Tensor], Tensor],
    ) -> None:
        """`large_logits` is the large model's matrix of logits, which most heads share."""
        head, layout = loaded.module, loaded.kv
        assert isinstance(head, DraftHead), "it goes on from one place to the next"
        assert layout is not None, "its layers keep KV"
        device = states.tokens.device
        self._storage = KVStorage(layout, getattr(torch, layout.dtype), device)
        super().__init__(limits, [self._storage, loaded.features.storage])
        self._head, self._features = head, loaded.features
        self.taps, self.needs_hidden = head.taps, not head.taps
        self._group = group
        self._block_size = layout.block_size
        self._tokens = states.tokens
        self._large = states
        self._rows = rows
        self._sampler = sampler
        self._attend = attend
        self._large_logits = large_logits
        self._kv = [self._layer(index) for index in range(len(head.layers))]
        self._keeps_latents = any(isinstance(cache, LatentCache) for cache in head.spec.caches)
        self._recorded: RecordedModel | None = None
        if loaded.core is not None:
            self._recorded = RecordedModel(head, self._kv, loaded.core.machine)
        self._last_position = min(head.spec.max_position, limits.max_model_len) - 1
        self._most_behind = limits.num_drafts + 1
        """Places that a step may have added to a row whose drafts it verified."""
        self._states = RowStates(
            tokens=states.tokens,
            num_computed=torch.zeros_like(states.num_computed),
            lengths_for_angles=states.lengths_for_angles,
            tables=[states.tables[group]],
        )
        """The same rows, as far as the head has come."""

    def keep(self, slots: Sequence[Tensor], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        self._features.write(slots[self._group], self._head.features(hidden, taps))

    def propose(self, rows: Tensor, count: int, mode: SamplingMode) -> None:
        computed = self._large.num_computed[rows].clamp(min=1)  # the spare row of a graph has none
        plain = replace(mode, adjusts=False, reported=None, names=False, penalizes=False)
        last = self._tokens.shape[1] - 1
        # places that it has seen are computed once more, to the same effect
        begin = (computed - self._most_behind).clamp(min=0)
        step = self._several(rows, begin, self._most_behind)
        several = self._compute(step, self._behind(step), self._features.read(step.slots[0]))
        at = torch.arange(len(rows), device=rows.device) * self._most_behind + computed - 1 - begin
        feature = several.index_select(0, at)
        for number in range(count):
            if number:
                step = self._several(rows, computed + number - 1, 1)
                feature = self._compute(step, self._behind(step), feature)
            positions = computed + number + 1
            drawn, _ = self._sampler.draw(self._logits(feature), rows, positions, plain)
            self._tokens.index_put_((rows, positions.clamp(max=last)), drawn.to(torch.int32))
        self._rows.ready.index_copy_(0, rows, self._rows.may_draft[rows].to(torch.int64) * count)

    def _sees_drafts(self, of_skipped: bool) -> bool:
        """What stands for features while it drafts alone is not what the large model makes of those tokens; the next
        proposal begins far enough back to see them all."""
        return not of_skipped

    def _compute_missed(self, rows: list[int], counts: list[int]) -> None:
        device = self._tokens.device
        at = upload(rows, torch.int64, device)
        missed = upload([self._missed[row] for row in rows], torch.int64, device)
        self._states.num_computed.index_copy_(0, at, (self._large.num_computed[at] - missed).clamp(min=0))
        max_blocks = self._states.tables[0].shape[1]
        step = step_inputs(rows, counts, self._states, block_size=self._block_size, max_blocks=max_blocks)
        owners = at.repeat_interleave(upload(counts, torch.int64, device), output_size=sum(counts))
        self._compute(step, self._tokens_behind(owners, step.positions), self._features.read(step.slots[0]))

    def _several(self, rows: Tensor, begin: Tensor, count: int) -> StepTensors:
        """`count` places of each row, from `begin` on."""
        self._states.num_computed.index_copy_(0, rows, begin)
        max_blocks = self._states.tables[0].shape[1]
        return decode_inputs(rows, self._states, block_size=self._block_size, max_blocks=max_blocks, count=count)

    def _behind(self, step: StepTensors) -> Tensor:
        """Of a step of equally many places of each row: the tokens behind them."""
        return self._tokens_behind(step.rows.repeat_interleave(len(step.positions) // len(step.rows)), step.positions)

    def _tokens_behind(self, rows: Tensor, positions: Tensor) -> Tensor:
        last = self._tokens.shape[1] - 1
        return self._tokens[rows, (positions + 1).clamp(max=last)].long()

    def _compute(self, step: StepTensors, words: Tensor, features: Tensor) -> Tensor:
        """What stands for the features of the places behind those of the step."""
        positions = step.positions.clamp(max=self._last_position)
        whole = (len(step.rows), len(positions))
        pasts = Pasts(*whole, *whole) if self._keeps_latents else None
        batch = make_batch(step, self._kv, attend=self._attend, pasts=pasts)
        found = self._head.words(words)
        x = torch.cat((found, features.to(found.dtype)), dim=1)
        if self._recorded is not None:
            return self._recorded.run(x.float(), positions, batch)
        return self._head.body(x, self._head.angles(positions, batch.lengths_for_angles), batch)

    def _logits(self, feature: Tensor) -> Tensor:
        feature = feature.contiguous()
        if not self._head.has_own_logits:
            return self._large_logits(self._head.before_logits(feature))
        return self._head.logits(feature) if self._recorded is None else self._recorded.logits(feature)

    def _layer(self, index: int) -> KVLayer:
        planes, group = self._storage.layer(index)
        return KVLayer(planes[0], planes[-1], group)
