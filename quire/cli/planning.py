"""How much of a device's memory a model takes, from its header alone, and what to change if it does not fit."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from quire.config.decide_compute import decide_dtype
from quire.config.decide_memory import memory_budget
from quire.config.decide_numbers import decide_numbers
from quire.config.decide_offload import decide_offload
from quire.config.decide_speculation import beside_drafter, without_drafter
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.holding import Holding
from quire.config.kv_layout import blocks_for, kv_tokens
from quire.config.memory import MemoryBudget, idle_bytes, weights_on_device
from quire.config.model import NO_MMPROJ
from quire.config.remedies import DrafterOf, Remedy, find_remedies, fit, no_drafter
from quire.config.resolve import resolve
from quire.config.resolved import DraftPlan, Resolved
from quire.config.sizes import decimal_size
from quire.config.speculation import Speculation
from quire.core.errors import ConfigError
from quire.models.loading.drafter import Small, plan_drafter
from quire.models.loading.drafting_method import with_drafting_method
from quire.models.loading.header import read_model_facts
from quire.models.loading.hub import cached_folder, is_hub_id

_USUAL_SEQ_LEN = 4096
_BATCHES = (1, 8, 64, 256)
"""Sequences that decode at once."""
_BOUNDLESS = 2**60
"""Bytes: more than any device has, to tell settings that can never work from ones that only lack memory."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """One device's memory, divided; every device of a model that is spread over several gets the same."""

    model: ModelFacts
    device: DeviceFacts
    num_devices: int
    dtype: str
    kv_dtype: str
    kv_bytes_per_token: int
    """Over all layers of one device."""
    block_bytes: int
    drafter_bytes: int
    """Weights of the model or head that drafts, on one device, or what they add to those of the fullest stage; 0: none
    does."""
    budget: MemoryBudget
    """Of what these leave."""
    seq_len: int
    """Length of the sequences that `sequences_in_memory` counts."""
    resolved: Resolved | None
    """None when it does not fit."""
    problem: str
    """Why it does not fit; empty when it does."""
    remedies: tuple[Remedy, ...]
    """Changes that make it fit, each tried out."""
    read_bytes: dict[int, int]
    """By sequences that decode at once: bytes of weights that a device is expected to read in a step, where a model has
    experts."""

    @property
    def fits(self) -> bool:
        return self.resolved is not None

    @property
    def num_blocks(self) -> int:
        """Of one device."""
        return self.resolved.kv.num_blocks if self.resolved else 0

    @property
    def num_tokens(self) -> int:
        """Tokens that blocks of all attention ranks hold when every layer keeps all of them; sliding windows leave room
        for more."""
        return kv_tokens(self.resolved.kv) * self.resolved.attention_ranks if self.resolved else 0

    @property
    def sequences_in_memory(self) -> int:
        """Sequences of `seq_len` tokens whose KV fits at once."""
        if self.resolved is None:
            return 0
        return self.num_blocks // sequence_blocks(self.resolved, self.seq_len) * self.resolved.attention_ranks

    @property
    def sequences_at_once(self) -> int:
        """The same, but no more than a step may hold."""
        limit = self.resolved.limits.max_num_seqs * self.resolved.attention_ranks if self.resolved else 0
        return min(self.sequences_in_memory, limit)


def plan_checkpoint(asked: EngineConfig, device: DeviceFacts, seq_len: int | None = None) -> MemoryPlan:
    """Plan for the checkpoint that `asked` names, reading only its header, and that of what drafts for it; a head that
    is a checkpoint of its own comes to this machine for that."""
    asked = with_drafting_method(asked)
    named = asked.model
    facts = read_model_facts(named.model, named.revision, named.model_impl, named.mmproj)
    path = Path(os.path.expanduser(named.model))
    speculation = asked.scheduler.speculation()
    if speculation is not None and speculation.method == "mtp" and not path.exists():
        path = _files_of(named.model, named.revision)

    def drafter_of(asked: EngineConfig, device: DeviceFacts) -> DraftPlan | HeadFacts | None:
        return plan_drafter(asked, path, facts, device, _small_from_header)

    return plan_memory(asked, facts, device, seq_len, drafter_of)


def _files_of(model: str, revision: str | None) -> Path:
    """Of a model whose own files have the layer that drafts, where they are on this machine."""
    found = cached_folder(model, revision) if is_hub_id(model) else None
    if found is None:
        raise ConfigError(
            f"the layer that drafts for method mtp is described by files of {model} that are not on this machine; "
            f"`quire pull {model}` brings them, or plan without --speculative-config."
        )
    return found


def _small_from_header(speculation: Speculation) -> Small:
    return Path(speculation.model), read_model_facts(speculation.model, mmproj=NO_MMPROJ)


def plan_memory(
    asked: EngineConfig,
    model: ModelFacts,
    device: DeviceFacts,
    seq_len: int | None = None,
    drafter_of: DrafterOf = no_drafter,
) -> MemoryPlan:
    """Divide the device's memory; raises a ConfigError only for settings that no memory would make work, and for
    models that keep no KV.
    """
    if model.spec.is_encoder:
        raise ConfigError(_weights_alone(asked, model, device))
    _check_seq_len(seq_len, asked, model)
    endless = replace(device, memory_bytes=_BOUNDLESS, host_memory_bytes=_BOUNDLESS)
    drafter = drafter_of(asked, endless)
    boundless = resolve(asked, model, endless, drafter)
    resolved, problem = fit(asked, model, device, seq_len, drafter_of)
    left = device if drafter is None else without_drafter(device, drafter)
    limits = boundless.limits
    step = (limits.max_num_seqs, limits.max_num_batched_tokens)
    cpu_blocks = (resolved or boundless).kv.num_cpu_blocks
    numbers = decide_numbers(asked, model, left, [])
    held, holding = numbers.model, numbers.holding
    left = device if drafter is None else beside_drafter(device, drafter, numbers, asked.parallel)
    offload = decide_offload(asked, held, left, holding, [])
    longest = (resolved or boundless).limits.max_model_len
    return MemoryPlan(
        model=model,
        device=device,
        num_devices=asked.parallel.num_ranks,
        dtype=boundless.dtype,
        kv_dtype=boundless.kv.dtype,
        kv_bytes_per_token=boundless.kv.bytes_per_token,
        block_bytes=boundless.kv.block_bytes,
        drafter_bytes=device.memory_bytes - left.memory_bytes,
        budget=memory_budget(asked, held, left, holding, step, boundless.kv, cpu_blocks, offload.away),
        seq_len=seq_len or min(_USUAL_SEQ_LEN, longest),
        resolved=resolved,
        problem=problem,
        remedies=() if resolved else find_remedies(asked, model, device, seq_len, drafter_of),
        read_bytes=_read_bytes(asked, held, holding),
    )


def sequence_blocks(resolved: Resolved, length: int) -> int:
    """Blocks one generating sequence of `length` tokens holds."""
    return blocks_for(resolved.kv.groups, resolved.kv.block_size, length + resolved.limits.num_lookahead_tokens)


def _read_bytes(asked: EngineConfig, model: ModelFacts, holding: Holding) -> dict[int, int]:
    if not model.spec.has_experts:
        return {}
    weights = weights_on_device(model, holding, asked.parallel)
    idle = idle_bytes(model, holding, asked.parallel, _BATCHES)
    return {count: weights - size for count, size in idle.items()}


def _weights_alone(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> str:
    """What there is to say of an encoder."""
    dtype = decide_dtype(asked.model.dtype, model, device, [])
    size = weights_on_device(model, Holding(dtype), asked.parallel)
    return (
        f"{model.name} embeds texts and generates none, so it keeps no KV to plan for: its weights take "
        f"{decimal_size(size)} in {dtype}, of the {decimal_size(device.memory_bytes)} of {device.name}."
    )


def _check_seq_len(seq_len: int | None, asked: EngineConfig, model: ModelFacts) -> None:
    if seq_len is None:
        return
    longest, source = model.spec.max_position, model.spec.max_position_source
    if asked.model.max_model_len is not None and asked.model.max_model_len < longest:
        longest, source = asked.model.max_model_len, "--max-model-len"
    if not 1 <= seq_len <= longest:
        raise ConfigError(f"--seq-len is {seq_len}, but it must be from 1 to {longest}, as {source} says.")
