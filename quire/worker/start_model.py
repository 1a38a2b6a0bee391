"""A model's modules with their weights: one of quire's own families, or what is borrowed from transformers."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Thread

import torch

from quire.config.resolved import Resolved
from quire.layers.policy import WeightPolicy
from quire.models.build import build_model
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.fallback.load import load_fallback
from quire.models.language_model import LanguageModel
from quire.models.load import expected_tensors, load_layer_by_layer, load_weights
from quire.models.loading.checkpoint import open_described
from quire.models.loading.described import DescribedModel
from quire.models.loading.read_ahead import ReadAhead
from quire.models.random_weights import WEIGHTS_SEED, RandomWeights
from quire.observe.start_clock import StartClock
from quire.parallel.peers import Peers
from quire.spec.rank import Place, rank_spec
from quire.spec.share import Share
from quire.spec.stage import stage_spec
from quire.worker.cpu_core import CpuCore
from quire.worker.weight_methods import method_of, schemes_of, shares_of

_log = logging.getLogger(__name__)

Progress = Callable[[int], None]
"""Told the bytes of every tensor that is in place."""


def borrowed_model(
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


def own_model(
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
        for_head = resolved.head is not None and resolved.head.borrows_words
        spec = stage_spec(spec, resolved.stages[pipeline.stage], words_for_head=for_head)
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
