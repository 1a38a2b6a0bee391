"""DraftModelProposer: a smaller model writes the drafts, in the same vocabulary or in its own.

It keeps KV of its own in the same blocks: wherever a token of the large model lies, its own lies in the same slot of
memory beside it. It draws with the noise that the large model will draw with, so that both agree as often as they can.
It runs only where drafts are wanted, and catches up with what it has missed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quire.config.resolved import KVLayout, StepLimits
from quire.kvcache.storage import KVStorage
from quire.layers.batch import KVLayer
from quire.models.language_model import LanguageModel
from quire.ops.functional import Attend, decode_inputs, step_inputs
from quire.ops.step_tensors import RowStates, StepTensors
from quire.ops.upload import upload
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import Sampler
from quire.worker.batching import make_batch
from quire.worker.cpu_core import CpuCore
from quire.worker.rank_sampler import RankSampler
from quire.worker.recorded import RecordedModel
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.draft_vocabulary import DraftVocabulary
from quire.worker.speculative.following import FollowingProposer


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A model whose weights are there, and how its KV lies in the blocks of the large one."""

    module: LanguageModel
    layout: KVLayout
    core: CpuCore | None
    """The native core, where that computes it."""
    vocabulary: DraftVocabulary | None = None
    """None: that of the large model."""
    taps: tuple[int, ...] = ()
    """It reads tokens, and no layer of the large model."""


class DraftModelProposer(FollowingProposer):
    """Of one worker. `states` are those of the large model's rows, of whose tables group `group` keeps every token."""

    def __init__(
        self,
        draft: DraftModel,
        limits: StepLimits,
        states: RowStates,
        group: int,
        rows: DraftRows,
        sampler: Sampler | RankSampler,
        attend: Attend,
    ) -> None:
        device = states.tokens.device
        self._storage = KVStorage(draft.layout, getattr(torch, draft.layout.dtype), device)
        super().__init__(limits, [self._storage])
        self._block_size = draft.layout.block_size
        self._tokens = states.tokens
        self._large = states
        self._rows = rows
        self._sampler = sampler
        self._attend = attend
        self._kv = [self._layer(index) for index in range(len(draft.module.layers))]
        computed: LanguageModel | RecordedModel = draft.module
        if draft.core is not None:
            computed = RecordedModel(draft.module, self._kv, draft.core.machine)
        self._forward: Callable[..., Tensor] = computed
        self._logits = computed.logits
        self._vocabulary = draft.vocabulary
        self._last_position = min(draft.module.spec.max_position, limits.max_model_len) - 1
        self._states = RowStates(
            tokens=states.tokens,
            num_computed=torch.zeros_like(states.num_computed),
            lengths_for_angles=states.lengths_for_angles,
            tables=[states.tables[group]],
        )
        """The same rows, as far as the small model has come."""

    def propose(self, rows: Tensor, count: int, mode: SamplingMode) -> None:
        computed = self._large.num_computed[rows].clamp(min=1)  # the spare row of a graph has none
        plain = replace(mode, adjusts=False, reported=None, names=False, penalizes=False)
        last = self._tokens.shape[1] - 1
        max_blocks = self._states.tables[0].shape[1]
        for number in range(count):
            # of a row whose drafts were all right, the last of them is not computed yet
            tokens = 2 if number == 0 else 1
            self._states.num_computed.index_copy_(0, rows, computed + number + 1 - tokens)
            step = decode_inputs(rows, self._states, block_size=self._block_size, max_blocks=max_blocks, count=tokens)
            hidden = self._compute(step)
            logits = self._logits(hidden[tokens - 1 :: tokens].contiguous())
            if self._vocabulary is not None:
                logits = self._vocabulary.logits(logits)
            positions = computed + number + 1
            drawn, _ = self._sampler.draw(logits, rows, positions, plain)
            self._tokens.index_put_((rows, positions.clamp(max=last)), drawn.to(torch.int32))
        self._rows.ready.index_copy_(0, rows, self._rows.may_draft[rows].to(torch.int64) * count)

    def _compute_missed(self, rows: list[int], counts: list[int]) -> None:
        at = upload(rows, torch.int64, self._tokens.device)
        missed = upload([self._missed[row] for row in rows], torch.int64, self._tokens.device)
        self._states.num_computed.index_copy_(0, at, self._large.num_computed[at] - missed)
        max_blocks = self._states.tables[0].shape[1]
        self._compute(step_inputs(rows, counts, self._states, block_size=self._block_size, max_blocks=max_blocks))

    def _compute(self, step: StepTensors) -> Tensor:
        positions = step.positions.clamp(max=self._last_position)
        input_ids = step.input_ids if self._vocabulary is None else self._vocabulary.read(step.input_ids)
        return self._forward(input_ids, positions, make_batch(step, self._kv, attend=self._attend))

    def _layer(self, index: int) -> KVLayer:
        (keys, values), group = self._storage.layer(index)
        return KVLayer(keys, values, group)
