"""From a checkpoint and resolved settings to a worker that is ready to run."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import torch

from quire.config.dtypes import FP8_DTYPES
from quire.config.resolved import DraftPlan, HeadPlan, Resolved
from quire.layers.policy import WeightPolicy
from quire.models.build import build_model
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.fallback.load import load_fallback
from quire.models.heads.draft_head import DraftHead
from quire.models.heads.medusa_heads import MedusaHeads
from quire.models.language_model import LanguageModel
from quire.models.load import expected_tensors, load_layer_by_layer, load_weights
from quire.models.loading.checkpoint import open_described
from quire.models.loading.described import DescribedModel, describe_local
from quire.models.loading.described_head import describe_head
from quire.models.loading.kv_scales import KVScale, read_kv_scales
from quire.models.loading.read_ahead import ReadAhead
from quire.models.loading.speech_settings import read_speech_vocabulary
from quire.models.random_weights import WEIGHTS_SEED, RandomWeights
from quire.observe.start_clock import StartClock
from quire.parallel.peers import Peers
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.logits_processor import load_processors
from quire.sampling.state import SamplingState
from quire.spec.draft_head import head_kind
from quire.spec.model import ModelSpec
from quire.spec.rank import Place, rank_spec
from quire.spec.share import Share
from quire.spec.stage import stage_spec
from quire.worker.adapter_store import AdapterStore
from quire.worker.compile_ahead import compile_ahead
from quire.worker.core_memory import CoreMemory
from quire.worker.cpu_core import CpuCore, open_cache, start_core, threads_of_rank
from quire.worker.expert_helper import ExpertHelper
from quire.worker.largest_step import check_memory
from quire.worker.last_stage import LastStage
from quire.worker.speculative.draft_model import DraftModel
from quire.worker.speculative.features import Features
from quire.worker.speculative.loaded_head import LoadedHead
from quire.worker.stage_worker import StageWorker
from quire.worker.start_expert_copies import start_expert_copies
from quire.worker.start_media import start_media
from quire.worker.weight_methods import method_of, schemes_of, shares_of
from quire.worker.worker import Worker

_log = logging.getLogger(__name__)

Progress = Callable[[int], None]
"""Told the bytes of every tensor that is in place."""
Grammars = GrammarCache
"""Where a worker's grammars come from."""


def start_worker(
    path: Path,
    resolved: Resolved,
    *,
    device: torch.device,
    seed: int = 0,
    in_background: bool = False,
    progress: Progress | None = None,
    grammars: Grammars | None = None,
    clock: StartClock | None = None,
    core: CpuCore | None = None,
    memory: CoreMemory | None = None,
    peers: Peers | None = None,
    num_local_ranks: int = 1,
) -> Worker:
    """Build the model at `path`, load its weights and allocate everything a step needs.

    In the background, the worker is there before its weights: the first steps run through layers as they come.
    `grammars` are those of structured output; `clock` is told what took how long; `core` is the native core if it is
    started already, and `memory` that of a worker to go on from; `peers` are the ranks that share the model,
    `num_local_ranks` of them on this host, in whose pipeline this one is of the last stage.
    """
    clock = clock or StartClock()
    group, pipeline = (None, None) if peers is None else (peers.group, peers.pipeline)
    if resolved.cpu_core:
        core = core or start_core(path, resolved)  # looks at the files before they are opened
        # what is left to torch is small, and a second pool would take the cores from the first
        torch.set_num_threads(1)
    elif peers is not None and device.type == "cpu":
        torch.set_num_threads(threads_of_rank(resolved, num_local_ranks))
    elif resolved.cpu_threads is not None:
        torch.set_num_threads(resolved.cpu_threads)
    described = describe_local(path, "transformers" if resolved.uses_transformers else "quire", _mmproj(resolved))
    spec = described.matched.spec
    model = (
        _borrowed_model(described, resolved, device, clock)
        if resolved.uses_transformers
        else _own_model(described, resolved, device, core, clock, progress, peers, in_background=in_background)
    )
    draws = group is None or group.is_first  # of ranks that share experts alone, each draws for its own sequences
    sampling = SamplingState(
        *(resolved.limits.max_num_seqs, spec.vocab_size, device, seed),
        grammar_cache=grammars,
        draws=draws,
        is_alone=group is None,
        speech=None if spec.encoder is None else read_speech_vocabulary(path),
        processors=load_processors(resolved.logits_processors),
    )
    adapters = _adapters(resolved, spec, model, device)
    if resolved.batch_invariant:
        from quire.ops.triton.batch_invariant_linear import never_split_inputs

        never_split_inputs()
    layers, layout, stage = range(spec.num_layers), resolved.kv, None
    if pipeline is not None:
        assert isinstance(model, LanguageModel), "stages are cut from quire's own families"
        layers = resolved.stages[pipeline.stage]
        layout = resolved.kv_of_stages[pipeline.stage]
        stage = LastStage(model, pipeline, getattr(torch, resolved.dtype), device)
    drafter = _drafter(resolved, spec, model, device, core, clock, peers)
    if drafter is not None and core is not None and memory is None:
        memory = CoreMemory(layout, resolved.limits)  # so that steps without drafts need no tensors
    worker = Worker(
        model,
        layout,
        resolved.limits,
        sampling,
        device,
        core,
        memory,
        kv_scales=_kv_scales(described, layers) if resolved.kv.dtype in FP8_DTYPES else None,
        batch_invariant=resolved.batch_invariant,
        group=group,
        helper=_expert_helper(model, resolved, peers, device),
        speculation=resolved.speculation,
        drafter=drafter,
        adapters=adapters,
        copies=start_expert_copies(described, resolved, model, device, layers),
        media=start_media(spec, model, resolved, device),
        stage=stage,
        counts_experts=not resolved.compile,  # what is compiled changes no numbers beside its results
        first_layer=layers.start,
    )
    clock.done("memory for KV and steps")
    if resolved.compile:
        compile_ahead(worker, resolved.kv)
        clock.done("compiling layers")
    if device.type == "cuda":
        check_memory(worker, resolved, device)
        clock.done("the largest step")
    return worker


def _mmproj(resolved: Resolved) -> Path | None:
    return None if resolved.mmproj is None else Path(resolved.mmproj)


def _adapters(
    resolved: Resolved, spec: ModelSpec, model: LanguageModel | FallbackDecoder, device: torch.device
) -> AdapterStore | None:
    """What the model adds of LoRA adapters, if it may have any; `spec` is that of all ranks together."""
    if resolved.lora is None:
        return None
    assert isinstance(model, LanguageModel), "adapters are added to quire's own families"
    store = AdapterStore(resolved.lora, spec, model.spec, device)
    store.attach(model)
    return store


def start_stage_worker(
    path: Path,
    resolved: Resolved,
    peers: Peers,
    *,
    device: torch.device,
    num_local_ranks: int,
    clock: StartClock | None = None,
) -> StageWorker:
    """The same for a rank of another stage than the last."""
    clock, pipeline = clock or StartClock(), peers.pipeline
    assert pipeline is not None, "there are several stages"
    if device.type == "cpu":
        torch.set_num_threads(threads_of_rank(resolved, num_local_ranks))
    described = describe_local(path, "quire", _mmproj(resolved))
    spec = described.matched.spec
    model = _own_model(described, resolved, device, None, clock, None, peers, in_background=False)
    layers = resolved.stages[pipeline.stage]
    worker = StageWorker(
        model,
        resolved.kv_of_stages[pipeline.stage],
        resolved.limits,
        device,
        getattr(torch, resolved.dtype),
        pipeline,
        kv_scales=_kv_scales(described, layers) if resolved.kv.dtype in FP8_DTYPES else None,
        adapters=_adapters(resolved, spec, model, device),
        copies=start_expert_copies(described, resolved, model, device, layers),
        media=start_media(spec, model, resolved, device),
        first_layer=layers.start,
    )
    clock.done("memory for KV and steps")
    if device.type == "cuda":
        check_memory(worker, resolved, device)
        clock.done("the largest step")
    return worker


def _expert_helper(
    model: LanguageModel | FallbackDecoder, resolved: Resolved, peers: Peers | None, device: torch.device
) -> ExpertHelper | None:
    """None where a rank has no experts that only others' tokens may have chosen."""
    if peers is None or peers.experts is None:
        return None
    assert isinstance(model, LanguageModel), "experts are those of quire's own families"
    return ExpertHelper(model, peers.experts, getattr(torch, resolved.dtype), device)


def _drafter(
    resolved: Resolved,
    spec: ModelSpec,
    large: LanguageModel | FallbackDecoder,
    device: torch.device,
    core: CpuCore | None,
    clock: StartClock,
    peers: Peers | None,
) -> DraftModel | LoadedHead | None:
    """What drafts for a model, where that has weights of its own; `spec` is that of all ranks together."""
    if resolved.draft is not None:
        return _draft_model(resolved.draft, device, core, clock, peers)
    if resolved.head is None:
        return None
    return _draft_head(resolved.head, resolved, spec, large, device, core, clock, peers)


def _draft_model(
    draft: DraftPlan, device: torch.device, core: CpuCore | None, clock: StartClock, peers: Peers | None
) -> DraftModel:
    """The model that drafts, with its weights; or a rank's part of it, where it is cut as the large one is."""
    path, resolved = Path(draft.path), draft.resolved
    own_core = None
    if core is not None and resolved.cpu_core:
        own_core = CpuCore(core.machine, open_cache(path, resolved))
    sharers = peers if resolved.tensor_parallel_size > 1 else None
    described = describe_local(path, "quire")
    model = _own_model(described, resolved, device, own_core, clock, None, sharers, in_background=False)
    clock.done("the model that drafts")
    return DraftModel(model, resolved.kv, own_core)


def _draft_head(
    plan: HeadPlan,
    resolved: Resolved,
    spec: ModelSpec,
    large: LanguageModel | FallbackDecoder,
    device: torch.device,
    core: CpuCore | None,
    clock: StartClock,
    peers: Peers | None,
) -> LoadedHead:
    """The head that drafts, with its weights, held as the large model's are; or a rank's part of it."""
    assert isinstance(large, LanguageModel), "heads draft for quire's own families"
    assert resolved.speculation is not None, "someone drafts"
    described = describe_head(Path(plan.path), head_kind(resolved.speculation.method), spec)
    matched, dtype = described.matched, getattr(torch, resolved.dtype)
    alone = replace(resolved, quantization=None)  # what is quantized on the way is the large model
    own_core = None if core is None else CpuCore(core.machine, None)
    policy = WeightPolicy(dtype, device, method_of(matched, alone, dtype, device, own_core))
    head_spec, shares = matched.spec, dict[str, Share]()
    group = None if peers is None else peers.group
    if plan.tensor_parallel_size > 1:
        assert group is not None, "it is cut for the ranks of the large model"
        head_spec = rank_spec(head_spec, Place(group.rank, group.size, plan.column_grain, resolved.expert_parallel))
        shares = shares_of(head_spec.tensors(), schemes_of(matched, alone))
        policy = replace(policy, group=group)
    medusa = resolved.speculation.method == "medusa"
    head = MedusaHeads(head_spec, policy) if medusa else DraftHead(head_spec, policy, large)
    load_weights(head, open_described(described, shares))
    clock.done("the head that drafts")
    return LoadedHead(head, plan.kv, Features(plan.features, device), own_core)


def _kv_scales(described: DescribedModel, layers: range) -> list[KVScale] | None:
    """What keys and values of these layers are divided by before they are stored in fp8; None: nothing."""
    matched = described.matched
    scales = read_kv_scales(matched.kv_scales, described.files, matched.spec.num_layers)
    found = "of the checkpoint" if scales is not None else "1, as the checkpoint has none"
    _log.info("scales of keys and values in fp8: %s", found)
    return None if scales is None else scales[layers.start : layers.stop]


def _borrowed_model(
    described: DescribedModel, resolved: Resolved, device: torch.device, clock: StartClock
) -> FallbackDecoder:
    """A model whose modules are transformers' own."""
    random_seed = WEIGHTS_SEED if resolved.random_weights else None
    dtype: torch.dtype = getattr(torch, resolved.dtype)
    model = load_fallback(
        described.path, described.config, described.matched.spec, dtype=dtype, device=device, random_seed=random_seed
    )
    clock.done("the model, from transformers")
    return model


def _own_model(
    described: DescribedModel,
    resolved: Resolved,
    device: torch.device,
    core: CpuCore | None,
    clock: StartClock,
    progress: Progress | None,
    peers: Peers | None = None,
    *,
    in_background: bool,
) -> LanguageModel:
    """A model of one of quire's families, with its weights or with a gate that opens as they come."""
    spec, shares = described.matched.spec, dict[str, Share]()
    group, pipeline = (None, None) if peers is None else (peers.group, peers.pipeline)
    if pipeline is not None:
        spec = stage_spec(spec, resolved.stages[pipeline.stage])
    place = _place(resolved, peers)
    if place is not None:
        spec = rank_spec(spec, place)
        shares = shares_of(spec.tensors(), schemes_of(described.matched, resolved))
    checkpoint = None if resolved.random_weights else open_described(described, shares)
    kept = frozenset(range(spec.num_layers - resolved.offloaded_layers, spec.num_layers))
    dtype: torch.dtype = getattr(torch, resolved.dtype)
    method = method_of(described.matched, resolved, dtype, device, core)
    policy = WeightPolicy(dtype, device, method, kept, expert_slots=resolved.expert_slots, group=group)
    if peers is not None:
        policy = replace(policy, exchange=peers.experts)
    model = build_model(spec, policy)
    clock.done("building the model")
    weights = checkpoint or RandomWeights(expected_tensors(model), policy.dtype, device, WEIGHTS_SEED)
    read = None
    if checkpoint is not None and device.type == "cuda" and not kept and not resolved.expert_slots:
        read = ReadAhead(checkpoint, device).read
    if in_background:
        load = load_layer_by_layer(model, weights, progress, read)
        # no daemon: a program that ends early waits for the layer that is being copied, instead of dying within it
        Thread(target=_load_in_background, args=(load, core, clock), name="quire-loader").start()
    else:
        load_weights(model, weights, progress, read=read)
        if core is not None:
            core.loaded(worked=True)
        clock.done("weights")
    if resolved.compile:
        from quire.models.compiled import compile_layers

        compile_layers(model)
    return model


def _place(resolved: Resolved, peers: Peers | None) -> Place | None:
    """Of this rank among those that the model is cut for; None: it is not cut."""
    among = None if peers is None else peers.group or peers.experts
    if peers is None or among is None:
        return None
    whole_experts, spare = resolved.expert_parallel, resolved.spare_experts
    return Place(among.rank, among.size, resolved.column_grain, whole_experts, spare, peers.experts is not None)


def _load_in_background(load: Callable[[], bool], core: CpuCore | None, clock: StartClock) -> None:
    begun = time.monotonic()
    worked = load()
    seconds = time.monotonic() - begun
    clock.beside("weights, meanwhile", seconds)
    _log.info("all weights are in place after %.2f s in the background", seconds)
    if core is not None:
        core.loaded(worked=worked)
