"""From a checkpoint and resolved settings to a worker that is ready to run."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import torch

from quire.config.resolved import Resolved
from quire.layers.attention import Attention
from quire.layers.weights import WeightPolicy
from quire.models.compiled import compile_layers
from quire.models.decoder import Decoder
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.fallback.load import load_fallback
from quire.models.fallback.plan import FallbackPlan
from quire.models.load import expected_tensors, load_layer_by_layer, load_weights
from quire.models.loading.checkpoint import Checkpoint
from quire.models.loading.hf_config import HFShape, read_hf_config
from quire.models.loading.open_checkpoint import open_checkpoint, read_config
from quire.models.loading.read_ahead import ReadAhead
from quire.models.random_weights import RandomWeights
from quire.models.registry import build_model
from quire.observe.start_clock import StartClock
from quire.ops.attention.base import AttentionBackend, AttentionShape
from quire.ops.attention.choose import choose_backend
from quire.sampling.grammar.shelf import GrammarShelf
from quire.sampling.state import SamplingState
from quire.worker.compile_ahead import compile_ahead
from quire.worker.cpu_core import CpuCore, start_core
from quire.worker.largest_step import check_memory
from quire.worker.worker import KVHeads, Worker

_log = logging.getLogger(__name__)

Progress = Callable[[int], None]
"""Told the bytes of every tensor that is in place."""
Grammars = GrammarShelf
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
) -> Worker:
    """Build the model at `path`, load its weights and allocate everything a step needs.

    In the background, the worker is there before its weights: the first steps run through layers as they come.
    `grammars` are those of structured output; `clock` is told what took how long.
    """
    clock = clock or StartClock()
    core = start_core(path, resolved) if resolved.cpu_core else None  # looks at the files before they are opened
    if core is None and resolved.cpu_threads is not None:
        torch.set_num_threads(resolved.cpu_threads)
    checkpoint = None if resolved.random_weights else open_checkpoint(path)
    config = read_config(path) if checkpoint is None else checkpoint.config()
    shape = read_hf_config(config, str(path))
    model: Decoder | FallbackDecoder
    if resolved.uses_transformers:
        made_up = seed if resolved.random_weights else None
        plan, dtype = FallbackPlan.of(shape), getattr(torch, resolved.dtype)
        model = load_fallback(path, config, plan, dtype=dtype, device=device, random_seed=made_up)
        clock.done("the model, from transformers")
    else:
        model = _own_model(
            checkpoint, shape, resolved, device, seed, core, clock, progress, in_background=in_background
        )
    rows = resolved.limits.max_num_seqs + 1  # one is spare
    sampling = SamplingState(rows, shape.vocab_size, device, seed, shelf=grammars)
    attention = choose_backend(resolved.attention_backend, _attention_shape(model, shape, resolved), device)
    clock.done("choosing who attends")
    worker = _worker(model, shape, resolved, device, sampling, core, attention)
    clock.done("memory for KV and steps")
    if resolved.compile:
        compile_ahead(worker, resolved.kv)
        clock.done("compiling layers")
    if device.type == "cuda":
        check_memory(worker, resolved, device)
        clock.done("the largest step")
    return worker


def _own_model(
    checkpoint: Checkpoint | None,
    shape: HFShape,
    resolved: Resolved,
    device: torch.device,
    seed: int,
    core: CpuCore | None,
    clock: StartClock,
    progress: Progress | None,
    *,
    in_background: bool,
) -> Decoder:
    """A model of one of quire's families, with its weights or with a gate that opens as they come."""
    kept = frozenset(range(shape.num_layers - resolved.offloaded_layers, shape.num_layers))
    packing = None if core is None else core.packing
    policy = WeightPolicy(getattr(torch, resolved.dtype), device, resolved.keep_packed, kept, packing)
    model = build_model(shape, policy)
    clock.done("building the model")
    weights = checkpoint or RandomWeights(expected_tensors(model), policy.dtype, device, seed)
    read = None
    if checkpoint is not None and device.type == "cuda" and not kept:
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
        compile_layers(model)
    return model


def _load_in_background(load: Callable[[], bool], core: CpuCore | None, clock: StartClock) -> None:
    begun = time.monotonic()
    worked = load()
    seconds = time.monotonic() - begun
    clock.beside("weights, meanwhile", seconds)
    _log.info("all weights are in place after %.2f s in the background", seconds)
    if core is not None:
        core.loaded(worked=worked)


def _worker(
    model: Decoder | FallbackDecoder,
    shape: HFShape,
    resolved: Resolved,
    device: torch.device,
    sampling: SamplingState,
    core: CpuCore | None,
    attention: AttentionBackend | None,
) -> Worker:
    heads = KVHeads(shape.num_kv_heads, shape.head_dim)
    machine = None if core is None else core.machine
    return Worker(model, resolved.kv, heads, resolved.limits, sampling, device, machine, attention)


def _attention_shape(model: Decoder | FallbackDecoder, shape: HFShape, resolved: Resolved) -> AttentionShape:
    layers = [part for part in model.modules() if isinstance(part, Attention)]
    return AttentionShape(
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        block_size=resolved.kv.block_size,
        dtype=getattr(torch, resolved.dtype),
        cache_dtype=getattr(torch, resolved.kv.dtype),
        scale=layers[0].scale,
        ways=tuple(dict.fromkeys((layer.window, layer.softcap) for layer in layers)),
    )
