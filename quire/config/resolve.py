"""From what was asked to what will be done: `resolve` is pure and gives every choice with its reason."""

from dataclasses import replace

from quire.config.cutting import column_grain
from quire.config.decide_compute import (
    check_parallel,
    decide_compile,
    decide_dtype,
    decide_stages,
    decide_step_size,
)
from quire.config.decide_cpu import decide_cpu_core
from quire.config.decide_disk import decide_disk
from quire.config.decide_encoder import check_encoder, most_sequences
from quire.config.decide_experts import decide_copies
from quire.config.decide_impl import decide_impl
from quire.config.decide_invariance import decide_batch_invariance
from quire.config.decide_kv import decide_kv_dtype, decide_kv_shape
from quire.config.decide_lora import decide_lora, lora_bytes
from quire.config.decide_memory import (
    decide_cpu_blocks,
    decide_max_model_len,
    decide_num_blocks,
    decide_packed,
    memory_budget,
)
from quire.config.decide_offload import check_offload, decide_offload
from quire.config.decide_policy import decide_policy, decide_queue_timeout, policy_settings
from quire.config.decide_quantization import decide_quantization
from quire.config.decide_speculation import (
    decide_speculation,
    head_in_blocks_of,
    in_blocks_of,
    with_drafter,
    without_drafter,
)
from quire.config.decide_vision import decide_vision
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.holding import Holding
from quire.config.kv_layout import KVShape
from quire.config.memory import ENCODED_AT_ONCE
from quire.config.resolved import (
    Choice,
    DraftPlan,
    KVLayout,
    PreemptionCosts,
    PreemptionMode,
    Resolved,
    StepLimits,
)
from quire.config.scheduler import SchedulerConfig


def resolve(
    asked: EngineConfig, model: ModelFacts, device: DeviceFacts, drafter: DraftPlan | HeadFacts | None = None
) -> Resolved:
    """Decide everything that was left open; a ConfigError says what is impossible and what to change.

    `drafter` is what was decided of the model, or found of the head, that drafts for this one.
    """
    choices: list[Choice] = []
    if drafter is not None:
        device = without_drafter(device, drafter)
    check_parallel(asked, model)
    check_encoder(asked, model)
    uses_transformers = decide_impl(asked, model, choices)
    core = decide_cpu_core(asked, model, device, choices)
    choices.extend(Choice("weights", "in part", f"left out are {reason}") for reason in model.left_out)
    if asked.model.load_format == "dummy":
        choices.append(Choice("load_format", "dummy", "asked for: weights are random and answers mean nothing"))
    model, quantization = decide_quantization(asked, model, choices, cpu_core=core)
    dtype = decide_dtype(asked.model.dtype, model, device, choices, cpu_core=core)
    kv_dtype = decide_kv_dtype(asked, dtype, model, device, choices, cpu_core=core)
    most = most_sequences(asked, model, device, dtype)
    seqs, tokens = decide_step_size(asked.scheduler, model, device, choices, most)
    shape = decide_kv_shape(asked, model, kv_dtype, choices)
    if drafter is not None:
        shape = with_drafter(shape, drafter, dtype, kv_dtype)
    cpu_blocks = decide_cpu_blocks(asked, device, shape, choices)
    keep_packed = decide_packed(asked, model, device, dtype, choices, cpu_core=core)
    batch_invariant = decide_batch_invariance(
        asked,
        model,
        device,
        dtype,
        kv_dtype,
        choices,
        cpu_core=core,
        keep_packed=keep_packed,
        uses_transformers=uses_transformers,
    )
    holding = Holding(dtype, keep_packed, core, on_gpu=device.kind == "cuda")
    offload = decide_offload(asked, model, device, holding, choices)
    lora = decide_lora(
        *(asked, model, device, dtype, choices),
        cpu_core=core,
        uses_transformers=uses_transformers,
        batch_invariant=batch_invariant,
    )
    check_offload(offload, lora)
    budget = memory_budget(asked, model, device, holding, (seqs, tokens), shape, cpu_blocks, offload.away)
    vision = decide_vision(asked, model, dtype, choices, tokens)
    budget = replace(budget, adapters=lora_bytes(lora, tokens), images=vision.num_bytes)
    blocks = decide_num_blocks(asked.cache, device, budget, shape, choices)
    threshold = asked.scheduler.long_prefill_token_threshold
    lookahead = asked.scheduler.num_lookahead_tokens
    speculation = decide_speculation(asked.scheduler, choices, drafter)
    max_model_len = decide_max_model_len(asked, model, shape, blocks, tokens + lookahead, choices)
    outgrown = None if model.spec.angles_follow_length else model.spec.angles_change_at
    encoded = 0 if model.spec.encoder is None else ENCODED_AT_ONCE[device.kind]
    limits = StepLimits(
        seqs,
        tokens,
        max_model_len,
        threshold,
        lookahead,
        asked.scheduler.num_drafts,
        recompute_beyond=outgrown,
        max_encoded=encoded,
        whole_images=model.spec.vision is not None and model.spec.vision.seen_whole > 0,
        num_stages=asked.parallel.pipeline_parallel_size,
    )
    compiled = decide_compile(
        asked, model, limits, choices, cpu_core=core, quantized=bool(model.schemes) and keep_packed
    )
    spare_experts, interval = decide_copies(asked.parallel, choices)
    layout = _layout(shape, blocks, cpu_blocks, kv_dtype)
    return Resolved(
        dtype=dtype,
        kv=layout,
        draft=in_blocks_of(layout, drafter) if isinstance(drafter, DraftPlan) else None,
        head=head_in_blocks_of(layout, drafter, dtype) if isinstance(drafter, HeadFacts) else None,
        limits=limits,
        preemption=_preemption(asked.scheduler, cpu_blocks, choices),
        preemption_costs=_preemption_costs(model, device, shape, asked.parallel.num_ranks),
        policy=decide_policy(asked.scheduler, choices),
        policy_settings=policy_settings(asked.scheduler),
        enable_prefix_caching=_prefix_caching(asked.cache.enable_prefix_caching, choices),
        target_itl_ms=_target_itl(asked.scheduler, choices),
        queue_timeout=decide_queue_timeout(asked.scheduler, choices),
        speculation=speculation,
        device_plugin=asked.model.device_plugin,
        logits_processors=asked.model.processor_names,
        weight_bytes=budget.weights,
        tensor_share=budget.of_tensors,
        keep_packed=keep_packed,
        quantization=quantization,
        random_weights=asked.model.load_format == "dummy",
        cpu_core=core,
        uses_transformers=uses_transformers,
        cpu_threads=asked.model.cpu_threads,
        cpu_sharers=asked.server.num_local_engines,
        compile=compiled,
        batch_invariant=batch_invariant,
        offloaded_layers=offload.layers,
        expert_slots=offload.expert_slots,
        tensor_parallel_size=asked.parallel.tensor_parallel_size,
        expert_parallel=asked.parallel.enable_expert_parallel,
        spare_experts=spare_experts,
        eplb_step_interval=interval,
        stage_ends=decide_stages(asked, model, choices),
        column_grain=column_grain(model),
        lora=lora,
        disk=decide_disk(asked, layout, speculation, choices),
        encoder_cache_tokens=(vision.device_tokens, vision.host_tokens),
        choices=tuple(choices),
    )


def _layout(shape: KVShape, num_blocks: int, num_cpu_blocks: int, dtype: str) -> KVLayout:
    return KVLayout(
        block_size=shape.block_size,
        num_blocks=num_blocks,
        num_cpu_blocks=num_cpu_blocks,
        groups=shape.groups,
        block_bytes=shape.block_bytes,
        bytes_per_token=shape.bytes_per_token,
        dtype=dtype,
    )


def _preemption(asked: SchedulerConfig, cpu_blocks: int, choices: list[Choice]) -> PreemptionMode:
    mode: PreemptionMode = asked.preemption_mode
    reason = "asked for"
    if mode == "auto" and cpu_blocks == 0:
        mode, reason = "recompute", "there is no swap space"
    elif mode == "auto":
        reason = "recompute or swap, whichever costs a sequence less"
    choices.append(Choice("preemption_mode", mode, reason))
    return mode


def _preemption_costs(model: ModelFacts, device: DeviceFacts, shape: KVShape, num_ranks: int) -> PreemptionCosts:
    operations = 2 * model.num_active_parameters / num_ranks
    return PreemptionCosts(
        seconds_per_token=operations / device.flops,
        seconds_per_block=2 * shape.block_bytes / device.host_bandwidth,
    )


def _prefix_caching(asked: bool, choices: list[Choice]) -> bool:
    reason = "shared prefixes of prompts are computed once" if asked else "turned off"
    choices.append(Choice("enable_prefix_caching", "on" if asked else "off", reason))
    return asked


def _target_itl(asked: SchedulerConfig, choices: list[Choice]) -> float | None:
    target = asked.target_itl_ms
    if target is None:
        choices.append(Choice("target_itl_ms", "none", "prompts take all the room a step has"))
    else:
        choices.append(Choice("target_itl_ms", f"{target:g}", "asked for; prompts are cut to keep it"))
    return target
