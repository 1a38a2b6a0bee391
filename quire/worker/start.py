"""From a checkpoint and resolved settings to a worker that is ready to run."""

import logging
from pathlib import Path

import torch

from quire.config.dtypes import FP8_DTYPES
from quire.config.resolved import Resolved
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.language_model import LanguageModel
from quire.models.loading.described import DescribedModel, describe_local
from quire.models.loading.kv_scales import KVScale, read_kv_scales
from quire.models.loading.speech_settings import read_speech_vocabulary
from quire.observe.start_clock import StartClock
from quire.parallel.peers import Peers
from quire.parallel.pipeline import Pipeline
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.logits_processor import load_processors
from quire.sampling.state import SamplingState
from quire.spec.model import ModelSpec
from quire.worker.adapter_store import AdapterStore
from quire.worker.compile_ahead import compile_ahead
from quire.worker.core_memory import CoreMemory
from quire.worker.cpu_core import CpuCore, start_core, threads_of_rank
from quire.worker.expert_helper import ExpertHelper
from quire.worker.largest_step import check_memory
from quire.worker.last_stage import LastStage
from quire.worker.stage_stream import StageStream
from quire.worker.stage_worker import StageWorker
from quire.worker.start_drafter import start_drafter
from quire.worker.start_expert_copies import start_expert_copies
from quire.worker.start_media import start_media
from quire.worker.start_model import Progress, borrowed_model, own_model
from quire.worker.worker import Worker
from quire.worker.worker_parts import WorkerParts

_log = logging.getLogger(__name__)

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
    if resolved.cpu_core:
        core = core or start_core(path, resolved)  # looks at the files before they are opened
    _share_cores(resolved, device, num_local_ranks if peers is not None else None)
    described = describe_local(path, "transformers" if resolved.uses_transformers else "quire", _mmproj(resolved))
    spec = described.matched.spec
    model = (
        borrowed_model(described, resolved, device, clock)
        if resolved.uses_transformers
        else own_model(described, resolved, device, core, clock, progress, peers, in_background=in_background)
    )
    sampling = _sampling_state(path, resolved, spec, device, seed, grammars, peers)
    if resolved.batch_invariant:
        from quire.ops.triton.batch_invariant_linear import never_split_inputs

        never_split_inputs()
    layers, layout, stage = range(spec.num_layers), resolved.kv, None
    if peers is not None and peers.pipeline is not None:
        assert isinstance(model, LanguageModel), "stages are cut from quire's own families"
        layers = resolved.stages[peers.pipeline.stage]
        layout = resolved.kv_of_stages[peers.pipeline.stage]
        stream = _stream(resolved, peers.pipeline, model, device)
        stage = LastStage(model, peers.pipeline, stream)
    parts = WorkerParts(
        kv_scales=_kv_scales(described, layers) if resolved.kv.dtype in FP8_DTYPES else None,
        batch_invariant=resolved.batch_invariant,
        group=None if peers is None else peers.group,
        helper=_expert_helper(model, resolved, peers, device),
        speculation=resolved.speculation,
        adapters=_adapters(resolved, spec, model, device),
        drafter=start_drafter(path, resolved, spec, model, device, core, clock, peers),
        copies=start_expert_copies(described, resolved, model, device, layers),
        media=start_media(spec, model, resolved, device),
        stage=stage,
        counts_experts=not resolved.compile,  # what is compiled changes no numbers beside its results
        first_layer=layers.start,
    )
    if parts.drafter is not None and core is not None and memory is None:
        memory = CoreMemory(layout, resolved.limits)  # so that steps without drafts need no tensors
    worker = Worker(model, layout, resolved.limits, sampling, device, parts, core, memory)
    clock.done("memory for KV and steps")
    if resolved.compile:
        compile_ahead(worker, resolved.kv)
        clock.done("compiling layers")
    if device.type == "cuda":
        check_memory(worker, resolved, device)
        clock.done("the largest step")
    return worker


def _share_cores(resolved: Resolved, device: torch.device, num_local_ranks: int | None) -> None:
    """Give torch its threads; `num_local_ranks` share the host's cores, where there are ranks."""
    if resolved.cpu_core:
        # what is left to torch is small, and a second pool would take the cores from the first
        torch.set_num_threads(1)
    elif num_local_ranks is not None and device.type == "cpu":
        torch.set_num_threads(threads_of_rank(resolved, num_local_ranks))
    elif resolved.cpu_threads is not None:
        torch.set_num_threads(resolved.cpu_threads)


def _sampling_state(
    path: Path,
    resolved: Resolved,
    spec: ModelSpec,
    device: torch.device,
    seed: int,
    grammars: Grammars | None,
    peers: Peers | None,
) -> SamplingState:
    group = None if peers is None else peers.group
    return SamplingState(
        *(resolved.limits.max_num_seqs, spec.vocab_size, device, seed),
        grammar_cache=grammars,
        draws=group is None or group.is_first,  # of ranks that share experts alone, each draws for its own sequences
        is_alone=group is None,
        speech=None if spec.encoder is None else read_speech_vocabulary(path),
        processors=load_processors(resolved.logits_processors),
    )


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
    model = own_model(described, resolved, device, None, clock, None, peers, in_background=False)
    layers = resolved.stages[pipeline.stage]
    worker = StageWorker(
        model,
        resolved.kv_of_stages[pipeline.stage],
        resolved.limits,
        device,
        pipeline,
        _stream(resolved, pipeline, model, device),
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


def _stream(resolved: Resolved, pipeline: Pipeline, model: LanguageModel, device: torch.device) -> StageStream:
    """Between a rank's stage and those around it."""
    first = resolved.stages[pipeline.stage].start
    taps = () if resolved.head is None else resolved.head.taps
    return StageStream(pipeline, model.spec.hidden_size, getattr(torch, resolved.dtype), device, first, taps)


def _expert_helper(
    model: LanguageModel | FallbackDecoder, resolved: Resolved, peers: Peers | None, device: torch.device
) -> ExpertHelper | None:
    """None where a rank has no experts that only others' tokens may have chosen."""
    if peers is None or peers.experts is None:
        return None
    assert isinstance(model, LanguageModel), "experts are those of quire's own families"
    return ExpertHelper(model, peers.experts, getattr(torch, resolved.dtype), device)


def _kv_scales(described: DescribedModel, layers: range) -> list[KVScale] | None:
    """What keys and values of these layers are divided by before they are stored in fp8; None: nothing."""
    matched = described.matched
    scales = read_kv_scales(matched.kv_scales, described.files, matched.spec.num_layers)
    found = "of the checkpoint" if scales is not None else "1, as the checkpoint has none"
    _log.info("scales of keys and values in fp8: %s", found)
    return None if scales is None else scales[layers.start : layers.stop]
