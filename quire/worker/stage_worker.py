"""StageWorker: a rank of any pipeline stage but the last: tokens or hidden states in, hidden states out.

It knows rows, their blocks and their lengths, and nothing of sampling. The tokens that the last stage samples, and the
drafts that it proposes, come back to the first one, which puts them into its rows before a step computes with them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from quire.config.resolved import KVLayout, StepLimits
from quire.core.carried_blocks import CarriedBlocks
from quire.core.plan import StepPlan
from quire.kvcache.storage import KVStorage
from quire.layers.batch import KVLayer
from quire.models.language_model import LanguageModel
from quire.models.loading.kv_scales import KVScale
from quire.ops.functional import finish_step
from quire.ops.upload import upload
from quire.parallel.pipeline import Pipeline
from quire.spec.cache import LatentCache
from quire.worker.adapter_store import AdapterStore
from quire.worker.batching import make_inputs
from quire.worker.device_time import DeviceTime
from quire.worker.expert_copies import ExpertCopies
from quire.worker.expert_figures import ExpertFigures
from quire.worker.kv_layers import kv_layers
from quire.worker.media_rows import MediaFigures, MediaRows
from quire.worker.out_of_memory import free_cached_memory
from quire.worker.plan_lengths import PlanLengths
from quire.worker.returned_rows import first_places, returned_width, take_rows
from quire.worker.row_adapters import RowAdapters
from quire.worker.rows import Rows
from quire.worker.running_step import RunningStep
from quire.worker.sleeping_weights import RestingWeights
from quire.worker.stage_stream import StageStream


@dataclass(slots=True)
class _Untaken:
    """Tokens of a step that are on their way back from the last stage."""

    places: list[int]
    """The rows they are of, in order."""
    rows: Tensor
    positions: Tensor
    """Where they will stand, or the first of each row, where drafts are verified."""
    gone: set[int] = field(default_factory=set)
    """Rows that have another sequence by now."""


class StageWorker:
    """Runs plans one after the other, in the order they come, as all stages do."""

    def __init__(
        self,
        model: LanguageModel,
        layout: KVLayout,
        limits: StepLimits,
        device: torch.device,
        pipeline: Pipeline,
        stream: StageStream,
        *,
        kv_scales: Sequence[KVScale] | None = None,
        adapters: AdapterStore | None = None,
        copies: ExpertCopies | None = None,
        media: MediaRows | None = None,
        first_layer: int = 0,
    ) -> None:
        """`copies` are those of the model's experts, and `media` those of prompts, where it may have any; `first_layer`
        is the number of its first layer in the whole model."""
        self._model = model
        self.adapters = adapters
        self.copies = copies
        self._experts = ExpertFigures(model, device, model, routers_count=copies is not None, first_layer=first_layer)
        num_rows = limits.max_num_seqs + 1  # and the spare one
        self._row_adapters = None if adapters is None else RowAdapters(num_rows, adapters.num_slots, device)
        self._media = media
        self._pipeline = pipeline
        self._stream = stream
        self._device = device
        self._block_size = layout.block_size
        self._storage = KVStorage(layout, getattr(torch, layout.dtype), device)
        self._kv: list[KVLayer] = kv_layers(self._storage, len(model.layers), kv_scales, device)
        self._keeps_latents = any(isinstance(cache, LatentCache) for cache in model.spec.caches)
        shape = (limits.max_num_seqs, limits.max_model_len, layout.block_size, len(layout.groups))
        self._rows = Rows(*shape, device, lookahead=limits.num_lookahead_tokens)
        self._most_drafts = limits.num_drafts
        self._last_position = limits.max_model_len - 1
        self._lengths = PlanLengths(limits.max_num_seqs)
        self._untaken: deque[_Untaken] = deque()
        self._weights = RestingWeights([model], None)

    @property
    def weight_bytes(self) -> int:
        """Of the model's modules."""
        return sum(each.nbytes for each in (*self._model.buffers(), *self._model.parameters()))

    @property
    def encodes(self) -> bool:
        """Whether media become embeddings here, for all stages."""
        return self._pipeline.is_first and self._media is not None

    @torch.inference_mode()
    def start(self, plan: StepPlan) -> RunningStep:
        """Give the stage's part of a step to the device, and what it makes to the next stage."""
        device_time = DeviceTime(self._device)
        self._apply_changes(plan)
        seen: MediaFigures | None = None
        if plan.rows:
            self._take_tokens(plan.rows)
            self._lengths.count(plan)
            seen = self._compute(plan)
        return RunningStep(plan.step, None, (), {}, device_time, media=seen)

    def _compute(self, plan: StepPlan) -> MediaFigures | None:
        """What became of the step's media, if it has any and they are encoded here."""
        states = self._rows.states
        if self._most_drafts and not self._pipeline.is_first:  # only there is known how many drafts were right
            lengths = self._pipeline.receive_lengths(len(plan.rows), self._device)
            states.num_computed.index_copy_(0, upload(plan.rows, torch.int64, self._device), lengths)
        inputs = make_inputs(
            plan,
            self._rows,
            self._kv,
            self._block_size,
            self._lengths.most_blocks(plan, self._block_size),
            self._lengths.tokens_of_prompts(plan),
            all_hidden=True,
            pasts=self._lengths.pasts(plan) if self._keeps_latents else None,
        )
        positions, batch, seen = inputs.positions, inputs.batch, None
        if self._most_drafts:
            positions = positions.clamp(max=self._last_position)  # of drafts that a sequence has no room for
            self._pipeline.pass_lengths(states.num_computed[inputs.rows])
        if self._row_adapters is not None and self._row_adapters.are_used_by(plan.rows):
            batch, _ = self._row_adapters.given_to(batch, inputs.rows, None)  # nothing is sampled
        if self._media is not None:
            positions, batch, seen = self._media.of_step(positions, inputs.rows, batch, plan, self._lengths.computed)
        batch = replace(batch, taps=self._stream.taps())
        if self._pipeline.is_first:
            x = self._model(inputs.input_ids, positions, batch)
        else:
            x = self._stream.receive(len(inputs.input_ids), batch.taps)
            x = self._model.forward_from(x, positions, batch)
        self._stream.send(x, batch.taps)
        finish_step(states, inputs.rows, batch.lengths, None)
        if self._pipeline.is_first and plan.num_sampling:
            places = plan.rows[: plan.num_sampling]
            begins = first_places(plan, inputs.sampling_positions)
            self._untaken.append(_Untaken(places, inputs.sampling_rows, begins))
        return seen

    def _take_tokens(self, rows: Sequence[int]) -> None:
        """Those that the rows of a step compute with; and old ones, so that the last stage need not keep them."""
        wanted = set(rows)
        needed = [number for number, step in enumerate(self._untaken, 1) if wanted & (set(step.places) - step.gone)]
        old = len(self._untaken) - self._pipeline.stages
        for _ in range(max(old, needed[-1] if needed else 0)):
            step = self._untaken.popleft()
            width = returned_width(self._most_drafts) if self._most_drafts else None
            tokens = self._pipeline.take_tokens(len(step.places), self._device, width)
            targets, positions = step.rows, step.positions
            if step.gone:
                kept = [place for place, row in enumerate(step.places) if row not in step.gone]
                chosen = upload(kept, torch.int64, self._device)
                tokens, targets, positions = (each.index_select(0, chosen) for each in (tokens, targets, positions))
            if self._most_drafts:
                take_rows(self._rows.states, targets, positions, tokens)
            else:
                self._rows.states.tokens.index_put_((targets, positions), tokens.to(torch.int32))

    def _apply_changes(self, plan: StepPlan) -> None:
        for each in plan.expert_copies:
            assert self.copies is not None, "the model was started without copies of experts"
            self.copies.place(each)
        self._storage.move(plan.swap_out, plan.swap_in, plan.copies)
        changed = {*plan.released, *(admission.row for admission in plan.admitted)}
        if changed:
            for step in self._untaken:
                step.gone |= changed.intersection(step.places)
        if self._row_adapters is not None:
            for row in plan.released:
                self._row_adapters.release(row)
            for admission in plan.admitted:
                self._row_adapters.admit(admission)
        if self._media is not None:
            for row in plan.released:
                self._media.release(row)
            for admission in plan.admitted:
                self._media.admit(admission)
        for admission in plan.admitted:
            self._rows.admit(admission)
            self._lengths.admit(admission)
        self._rows.change(plan.table_deltas)

    def measured_load(self) -> dict[int, list[int]]:
        """As a Worker's."""
        return self._experts.by_layer()

    def warm_up(self) -> bool:
        """Nothing is captured ahead."""
        return False

    def carried_blocks(self) -> CarriedBlocks:
        """Its KV blocks, for whoever carries them elsewhere."""
        return self._storage.carried_blocks()

    @torch.inference_mode()
    def sleep(self) -> None:
        """As a Worker's."""
        if self._media is not None:
            self._media.forget_encoded()
        self._storage.give_back()
        self._weights.sleep(self._device)
        free_cached_memory(self._device)

    @torch.inference_mode()
    def wake_up(self) -> None:
        """As a Worker's."""
        self._weights.wake_up()
        self._storage.take_back()
