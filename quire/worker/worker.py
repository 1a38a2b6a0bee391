"""Worker: owns one device. Plan in, tensors, model, sampler, result out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from quire.config.resolved import KVLayout, StepLimits
from quire.config.speculation import draft_lengths
from quire.core.carried_blocks import CarriedBlocks
from quire.core.expert_load import CacheCounts, ExpertLoad
from quire.core.pasts import Pasts
from quire.core.plan import Admission, StepPlan
from quire.core.request import Request
from quire.kvcache.storage import KVStorage
from quire.layers.batch import Batch
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.language_model import LanguageModel
from quire.ops.functional import (
    Attend,
    batch_invariant_attention,
    decode_inputs,
    finish_step,
    paged_attention,
    shared_prefix_attention,
)
from quire.ops.lora_tensors import AdapterRows
from quire.sampling.grammar.constraint import Constraint
from quire.sampling.grammar.progress import Constrained
from quire.sampling.mode import SamplingMode
from quire.sampling.sampler import Sampler
from quire.sampling.state import SamplingState
from quire.sampling.verification import VerifiedTokens
from quire.spec.cache import LatentCache
from quire.worker.assemble import (
    can_be_captured,
    make_drafting,
    make_encoded_media,
    make_plain_steps,
    make_prefix_tiles,
    record_model,
    row_states,
)
from quire.worker.batching import StepInputs, make_batch, make_inputs
from quire.worker.constrained_steps import ConstrainedSteps
from quire.worker.core_memory import CoreMemory
from quire.worker.core_steps import CoreStepDone
from quire.worker.cpu_core import CpuCore
from quire.worker.decode_graphs import DecodeGraphs, Drawn
from quire.worker.device_time import DeviceTime
from quire.worker.expert_figures import ExpertFigures
from quire.worker.kv_layers import kv_layers
from quire.worker.last_stage import ReturningSampler
from quire.worker.media_rows import MediaFigures
from quire.worker.out_of_memory import free_cached_memory
from quire.worker.plan_lengths import PlanLengths
from quire.worker.prompt_logprobs import PromptLogprobs
from quire.worker.rank_sampler import RankSampler
from quire.worker.readouts import Readouts
from quire.worker.recorded import RecordedModel
from quire.worker.returned_rows import first_places, returned_rows
from quire.worker.row_adapters import RowAdapters
from quire.worker.row_followers import RowFollowers
from quire.worker.rows import Rows
from quire.worker.running_step import RunningStep, UnreadDrafts
from quire.worker.sleeping_weights import RestingWeights
from quire.worker.warmup import warmup_steps
from quire.worker.worker_parts import WorkerParts

Forward = Callable[[Tensor, Tensor, Batch], Tensor]
"""Tokens, their positions and the step's batch to hidden states."""
_NOTHING_LEFT = object()


class Worker:
    """Runs plans one after the other, in the order they come."""

    def __init__(
        self,
        model: LanguageModel | FallbackDecoder,
        layout: KVLayout,
        limits: StepLimits,
        sampling: SamplingState,
        device: torch.device,
        parts: WorkerParts,
        core: CpuCore | None = None,
        memory: CoreMemory | None = None,
    ) -> None:
        """`core` is the native CPU core, where that computes; `memory` is that of a worker to go on from."""
        self.adapters, self.copies = parts.adapters, parts.copies
        self._helper, self._stage, self._media = parts.helper, parts.stage, parts.media
        self._attend: Attend = batch_invariant_attention if parts.batch_invariant else paged_attention
        self._sampling = sampling
        self._block_size = layout.block_size
        kv = None if memory is None else torch.from_numpy(memory.kv)
        self._storage = KVStorage(layout, getattr(torch, layout.dtype), device, kv)
        self._kv = kv_layers(self._storage, len(model.layers), parts.kv_scales, device)
        self._model = model
        self._keeps_latents = any(isinstance(cache, LatentCache) for cache in model.spec.caches)
        computed: LanguageModel | FallbackDecoder | RecordedModel = model
        if core is not None:
            assert isinstance(model, LanguageModel), "the core records quire's own families"
            computed = record_model(model, self._kv, core, parts)
        self._experts = ExpertFigures(
            model, device, computed, routers_count=parts.counts_experts, first_layer=parts.first_layer
        )
        self._forward: Forward = computed if self._stage is None else self._stage.forward
        self._needs_all_hidden = core is not None or self._helper is not None
        """A recorded program computes the same rows from its first operation to its last; ranks that exchange tokens
        know of each other only how many a step has."""
        self._logits = computed.logits
        states = None if memory is None else row_states(memory)
        self._rows = Rows(
            limits.max_num_seqs,
            limits.max_model_len,
            layout.block_size,
            len(layout.groups),
            device,
            states,
            limits.num_lookahead_tokens,
        )
        sampler = Sampler(sampling, self._rows.states.tokens)
        of_ranks = sampler if parts.group is None else RankSampler(sampler, parts.group)
        self._sampler = of_ranks if self._stage is None else ReturningSampler(of_ranks.sample, self._stage.pipeline)
        self._drafting = make_drafting(parts, layout, limits, self._rows.states, sampler, memory, computed.logits)
        # forced tokens would have to be told to other ranks
        can_jump = device.type != "cuda" and parts.group is None and self._stage is None
        self._constrained = ConstrainedSteps(
            *(sampling, self._rows.states, limits.max_model_len),
            can_jump=can_jump,
            drafts=None if self._drafting is None else self._drafting.rows,
        )
        self._limits, self._device = limits, device
        self._graphs = self._decode_graphs()
        # reading a prefix once for many sequences is another order of sums
        may_share_prefix = self._graphs is not None and not parts.batch_invariant and not self._keeps_latents
        self._prefix_tiles = make_prefix_tiles(model.spec, layout, limits, device) if may_share_prefix else None
        self._row_adapters = (
            None if self.adapters is None else RowAdapters(limits.max_num_seqs + 1, self.adapters.num_slots, device)
        )
        self._encoded = make_encoded_media(model, limits, device)
        modules = [model] if parts.drafter is None else [model, parts.drafter.module]
        self._weights = RestingWeights(modules, None if core is None else core.cache)
        self._prompt_logprobs = PromptLogprobs(self._project_prompt, sampling.vocab_size)
        self._readouts = Readouts(limits.max_num_seqs, model.spec.hidden_size, device)
        self._lengths = PlanLengths(limits.max_num_seqs) if memory is None else memory.lengths
        self._layout = layout
        self._warmup = self._warmup_steps()
        self._plain = make_plain_steps(computed, core, memory, sampling, layout, self._drafting)
        self._followers = RowFollowers(
            (self._constrained, self._prompt_logprobs, self._readouts, self._row_adapters, self._media, self._drafting)
        )
        if memory is not None:
            self._go_on_with(memory.sequences())

    @property
    def weight_bytes(self) -> int:
        """Of the model's modules, as far as its weights have come."""
        return sum(each.nbytes for each in (*self._model.buffers(), *self._model.parameters()))

    def start(self, plan: StepPlan) -> RunningStep | CoreStepDone:
        """Give a step to the device; on a GPU it runs while the caller goes on."""
        if self._plain is not None and not plan.moves_sequences:  # most steps; there is nothing for torch to do
            plain = self._plain.run(plan)
            if plain is not None:
                return CoreStepDone(plain)
        return self._start(plan)

    @torch.inference_mode()
    def _start(self, plan: StepPlan) -> RunningStep | CoreStepDone:
        """The same, with whatever changes before it."""
        device_time = DeviceTime(self._device)
        self._apply_changes(plan)
        if self._helper is not None:
            self._helper.begin(plan)
        if not plan.rows:
            return RunningStep(plan.step, None, (), {}, device_time)
        plain = None if self._plain is None else self._plain.run(plan)
        if plain is not None:
            return CoreStepDone(plain)
        self._lengths.count(plan)
        self._sampling.expire(self._lengths.fewest)
        drafts = plan.drafts_of_each if plan.num_drafts else 0
        if self._graphs is not None and (drafts or plan.only_decodes) and not self._needs_host(plan):
            return self._decode(self._graphs, plan, device_time, drafts or 0)
        return self._run(plan, device_time)

    def _run(self, plan: StepPlan, device_time: DeviceTime) -> RunningStep:
        """A step of any kind, one operation after the other."""
        inputs = self._make_inputs(plan)
        adapters: AdapterRows | None = None
        if self._row_adapters is not None and self._row_adapters.are_used_by(plan.rows):
            batch, adapters = self._row_adapters.given_to(inputs.batch, inputs.rows, inputs.sampled_tokens)
            inputs = replace(inputs, batch=batch)
        alignment = None
        if self._encoded is not None:
            batch = self._encoded.of_rows(inputs.batch, inputs.rows, len(inputs.positions))
            alignment = self._readouts.alignment(plan)
            if alignment is not None and batch.encoded is not None:
                batch = replace(batch, encoded=replace(batch.encoded, alignment=alignment))
            inputs = replace(inputs, batch=batch)
        self._constrained.foresee(plan)
        positions = inputs.positions
        if plan.num_drafts and self._drafting is not None:
            positions = self._drafting.positions(positions)
        seen: MediaFigures | None = None
        if self._media is not None:
            positions, batch, seen = self._media.of_step(
                positions, inputs.rows, inputs.batch, plan, self._lengths.computed
            )
            inputs = replace(inputs, batch=batch)
        if self._drafting is not None:
            inputs = replace(inputs, batch=self._drafting.tapped(inputs.batch))
        self._experts.count_all()
        hidden = self._forward(inputs.input_ids, positions, inputs.batch)
        if self._drafting is not None:
            self._drafting.keep(inputs.batch.slots, hidden, _tapped(inputs.batch))
            if not plan.num_sampling:
                self._drafting.skip(plan)
        prompt_logprobs = self._prompt_logprobs.logprobs(plan, hidden, self._lengths.computed, self._rows.states.tokens)
        pooled = self._readouts.take(plan, hidden, self._lengths.computed, alignment)
        sampled, constrained = self._sample(plan, inputs, hidden, adapters) if plan.num_sampling else (None, ())
        # sampled tokens become the next step's inputs without leaving the device
        rows, lengths = inputs.rows, inputs.batch.lengths
        if isinstance(sampled, VerifiedTokens):
            done = plan.num_sampling
            finish_step(self._rows.states, rows[done:], lengths[done:], None)
        else:
            finish_step(self._rows.states, rows, lengths, None if sampled is None else sampled.tokens)
        reports = self._sampling.reports(plan.rows[: plan.num_sampling])
        unread = self._unread_drafts(plan, inputs.sampling_rows)
        running = RunningStep(
            plan.step, sampled, reports, prompt_logprobs, device_time, constrained, pooled, unread, media=seen
        )
        self._constrained.drawn(plan, running, self._lengths.computed)
        if constrained and unread is not None and self._drafting is not None:
            unread.ready = self._drafting.ready(inputs.sampling_rows)  # less what grammars forbid
        return running

    def _needs_host(self, plan: StepPlan) -> bool:
        """Whether a step does something that no graph can hold."""
        sees_media = self._media is not None and self._media.needs(plan, self._lengths.computed)
        return sees_media or self._sampling.processors.need_the_host

    def prepare(self, request: Request) -> None:
        """Everything is there."""

    @torch.inference_mode()
    def warm_up(self) -> bool:
        """Do one piece of the warm-up, while no row is admitted; False when nothing is left."""
        if self._prefix_tiles is not None:  # the last batch may have been larger than what is captured now
            self._prefix_tiles.clear()
        return next(self._warmup, _NOTHING_LEFT) is not _NOTHING_LEFT

    def expert_load(self) -> ExpertLoad | None:
        """How often tokens have chosen each expert, as far as that is known without waiting for the device; None: there
        are no experts, or none that count."""
        return self._experts.load()

    def measured_load(self) -> dict[int, list[int]]:
        """By layer of its own, how often tokens have chosen each expert; waits for the device."""
        return self._experts.by_layer()

    def expert_cache(self) -> CacheCounts | None:
        """How often experts were on the device that steps asked for; None: all are always there."""
        return self._experts.cache()

    def carried_blocks(self) -> CarriedBlocks:
        """Its KV blocks, for whoever carries them elsewhere."""
        return self._storage.carried_blocks()

    @torch.inference_mode()
    def sleep(self) -> None:
        """Give the device's memory back while no row is admitted: weights to host memory, where they are not there
        already or in a file, KV and captured graphs dropped."""
        if isinstance(self._model, LanguageModel):
            self._model.gate.wait_for_all()  # weights may still be on their way
        if self._graphs is not None:
            self._graphs.clear()
        if self._media is not None:
            self._media.forget_encoded()
        if self._encoded is not None:
            self._encoded.give_back()
        for storage in self._storages():
            storage.give_back()
        self._weights.sleep(self._device)
        free_cached_memory(self._device)

    @torch.inference_mode()
    def wake_up(self) -> None:
        """Graphs are captured again as they are used, or while there is nothing to do: weights and KV have other
        addresses now."""
        self._weights.wake_up()
        for storage in self._storages():
            storage.take_back()
        if self._encoded is not None:
            self._encoded.take_back()
        self._warmup = self._warmup_steps()

    @torch.inference_mode()
    def reset(self) -> None:
        """Forget every row, and make sure that the device still computes: after some errors it never will again."""
        for row in range(self._limits.max_num_seqs):
            self._sampling.release(row)
        self._followers.reset()
        if self._plain is not None:
            self._plain.reset()
        if self._encoded is not None:
            self._encoded.reset()
        if self._prefix_tiles is not None:
            self._prefix_tiles.clear()
        free_cached_memory(self._device)
        torch.ones(1, device=self._device).item()

    def _storages(self) -> list[KVStorage]:
        return [self._storage, *([] if self._drafting is None else self._drafting.storages())]

    def _decode_graphs(self) -> DecodeGraphs | None:
        # what is captured waits for no other stage, nor for ranks whose steps are of other sizes
        is_on_its_own = self._device.type == "cuda" and self._stage is None and self._helper is None
        if not is_on_its_own or not can_be_captured(self._model, self._experts, self._drafting):
            return None
        return DecodeGraphs(
            *(self._compute, self._draw, self._limits.max_num_seqs, self._rows.spare, self._device),
            most_drafts=self._limits.num_drafts,
        )

    def _warmup_steps(self) -> Iterator[object]:
        if self._graphs is None:
            return iter(())
        return warmup_steps(
            *(self.start, self._graphs, self._layout),
            may_share_prefix=self._prefix_tiles is not None,
            keeps_latents=self._keeps_latents,
            drafts=draft_lengths(self._limits.num_drafts)[1:],
            has_adapters=self.adapters is not None,
        )

    def _unread_drafts(self, plan: StepPlan, rows: Tensor | None) -> UnreadDrafts | None:
        """What the step will say of drafts; `rows` sample, where the host may be told what they have ready."""
        if self._drafting is None:
            return None
        ready = None if rows is None else self._drafting.ready(rows)
        return UnreadDrafts(self._lengths.note_verified(plan), ready)

    def _decode(self, graphs: DecodeGraphs, plan: StepPlan, device_time: DeviceTime, drafts: int) -> RunningStep:
        constrained = list[tuple[int, Constraint]]()

        def bind(logits: Tensor) -> None:
            constrained.extend(self._constrained.bind(plan, logits))

        self._constrained.foresee(plan)
        before_drawing = bind if self._sampling.grammars.is_active else None
        # a tile has one query of each of its members
        if self._drafting is not None:
            self._drafting.prepare(plan, drafts)
        shared = self._prefix_tiles is not None and not drafts and self._prefix_tiles.choose(plan.rows)
        mode = self._sampling.mode_of_drafts if drafts else self._sampling.mode
        adapted = self._row_adapters is not None and self._row_adapters.are_used_by(plan.rows)
        chosen = mode.of_graph()
        sampled = graphs.run(plan.rows, chosen, before_drawing, shared=shared, drafts=drafts, adapted=adapted)
        reports = self._sampling.reports(plan.rows)
        unread = self._unread_drafts(plan, None)
        running = RunningStep(plan.step, sampled, reports, {}, device_time, constrained, drafts=unread)
        self._constrained.drawn(plan, running, self._lengths.computed)
        return running

    def _compute(self, rows: Tensor, shared: bool, drafts: int, adapted: bool) -> tuple[Tensor, Tensor]:
        states = self._rows.states
        max_blocks = states.tables[0].shape[1]
        step = decode_inputs(rows, states, block_size=self._block_size, max_blocks=max_blocks, count=1 + drafts)
        positions = step.positions
        if drafts and self._drafting is not None:
            positions = self._drafting.positions(positions)
        if self._media is not None:
            positions = self._media.positions_of_decodes(positions, rows)
        attend = self._attend
        if shared and self._prefix_tiles is not None:
            attend = partial(shared_prefix_attention, tiles=self._prefix_tiles.of(len(rows)))
        whole = (len(rows), len(rows) * (1 + drafts))
        pasts = Pasts(*whole, *whole) if self._keeps_latents else None
        batch, adapters = make_batch(step, self._kv, attend=attend, pasts=pasts), None
        if adapted and self._row_adapters is not None:
            adapters = self._row_adapters.of(rows, 1 + drafts)
            batch = replace(batch, adapters=adapters)
        if self._encoded is not None:
            batch = self._encoded.of_rows(batch, rows, len(rows))
        if self._drafting is not None:
            batch = self._drafting.tapped(batch)
        self._experts.count_real(rows, self._rows.spare, 1 + drafts)
        hidden = self._forward(step.input_ids, positions, batch)
        if self._drafting is not None:
            self._drafting.keep(batch.slots, hidden, _tapped(batch))
        return self._project(hidden, range(0), adapters), step.lengths

    def _project(self, hidden: Tensor, prompts: range, adapters: AdapterRows | None) -> Tensor:
        """Logits; what knows of no adapters is never given any."""
        return self._logits(hidden, prompts) if adapters is None else self._logits(hidden, prompts, adapters)

    def _project_prompt(self, hidden: Tensor, row: int) -> Tensor:
        """Logits of tokens of one prompt."""
        adapters = None if self._row_adapters is None else self._row_adapters.of_row(row, len(hidden))
        return self._project(hidden, range(len(hidden)), adapters)

    def _draw(self, rows: Tensor, logits: Tensor, lengths: Tensor, mode: SamplingMode, drafts: int) -> Drawn:
        sampled: Drawn
        if drafts and self._drafting is not None:
            sampled = self._drafting.verify_even(logits, rows, lengths, drafts, mode)
        else:
            sampled = self._sampler.sample(logits, rows, lengths, mode)
            finish_step(self._rows.states, rows, lengths, sampled.tokens)
            if self._drafting is not None:
                self._drafting.go_without(rows, mode)
        self._rows.rest_spare()
        return sampled

    def _sample(
        self, plan: StepPlan, inputs: StepInputs, hidden: Tensor, adapters: AdapterRows | None
    ) -> tuple[Drawn, Constrained]:
        last = hidden if inputs.sampling_indices is None else hidden.index_select(0, inputs.sampling_indices)
        logits = self._project(last, self._lengths.ends_of_prompts(plan), adapters)
        rows = inputs.sampling_rows
        constrained = self._constrained.bind(plan, logits)  # behind the forward: on a GPU it may wait for the last step
        if self._drafting is not None:
            mode, lengths = self._sampling.mode_of_drafts, inputs.sampling_positions
            verified = self._drafting.verify(logits, rows, lengths, plan, mode)
            if self._stage is not None:
                begins = first_places(plan, lengths)
                told = returned_rows(self._rows.states, rows, begins, self._limits.num_drafts)
                self._stage.pipeline.return_tokens(told)
            return verified, constrained
        sampled = self._sampler.sample(logits, rows, inputs.sampling_positions, self._sampling.mode)
        return sampled, constrained

    def _apply_changes(self, plan: StepPlan) -> None:
        for each in plan.expert_copies:
            assert self.copies is not None, "the model was started without copies of experts"
            self.copies.place(each)
        self._storage.move(plan.swap_out, plan.swap_in, plan.copies)
        if self._drafting is not None:
            self._drafting.move(plan)
        for row in plan.released:
            self._sampling.release(row)
            self._followers.release(row)
            if self._encoded is not None:
                self._encoded.release(row)
            if self._plain is not None:
                self._plain.release(row)
        for admission in plan.admitted:
            self._admit(admission)
        if self._encoded is not None:
            self._encoded.admit(plan.admitted)
        self._rows.change(plan.table_deltas)
        if self._prefix_tiles is not None:
            self._prefix_tiles.follow(plan)

    def _admit(self, admission: Admission) -> None:
        self._rows.admit(admission)
        self._lengths.admit(admission)
        self._followers.admit(admission)
        if admission.pooling is None:  # what samples nothing is not to change the mode of sampling
            self._admit_to_sampling(admission)
        if self._plain is not None:
            self._plain.admit(admission)

    def _go_on_with(self, admissions: Iterable[Admission]) -> None:
        """Of sequences that have their rows already; none has media, as the core alone takes no such prompt."""
        for admission in admissions:
            self._admit_to_sampling(admission)
            if self._plain is not None:
                self._plain.admit(admission)
            if self._drafting is not None:
                self._drafting.go_on_with(admission)

    def _admit_to_sampling(self, admission: Admission) -> None:
        self._sampling.admit(
            admission.row,
            admission.params,
            request_id=admission.request_id,
            index=admission.index,
            prompt=admission.tokens[: admission.num_prompt],
            output=admission.tokens[admission.num_prompt :],
            stop_ids=admission.stop_ids,
            bad_words=admission.bad_words,
        )

    def _make_inputs(self, plan: StepPlan) -> StepInputs:
        max_blocks = self._lengths.most_blocks(plan, self._block_size)
        for_drafts = self._drafting is not None and self._drafting.needs_hidden
        all_hidden = (
            self._needs_all_hidden or for_drafts or self._prompt_logprobs.are_asked_for or self._readouts.are_asked_for
        )
        prompts = self._lengths.tokens_of_prompts(plan)
        return make_inputs(
            plan,
            self._rows,
            self._kv,
            self._block_size,
            max_blocks,
            prompts,
            all_hidden=all_hidden,
            pasts=self._lengths.pasts(plan) if self._keeps_latents else None,
            attend=self._attend,
        )


def _tapped(batch: Batch) -> list[Tensor]:
    return [] if batch.taps is None else batch.taps.in_order()
