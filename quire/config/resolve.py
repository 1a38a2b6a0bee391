"""From what was asked to what will be done: `resolve` is pure and gives every choice with its reason."""

from quire.config.cutting import column_grain
from quire.config.decide_attention_ranks import decide_attention_ranks
from quire.config.decide_compute import check_parallel, decide_compile, decide_stages
from quire.config.decide_disk import decide_disk
from quire.config.decide_encoder import check_encoder
from quire.config.decide_experts import decide_copies
from quire.config.decide_invariance import decide_batch_invariance
from quire.config.decide_kv import kv_of_stages
from quire.config.decide_memory import decide_max_model_len
from quire.config.decide_numbers import decide_numbers
from quire.config.decide_policy import decide_policy, decide_queue_timeout, policy_settings
from quire.config.decide_preemption import decide_preemption, preemption_costs
from quire.config.decide_room import DeviceRoom, decide_room
from quire.config.decide_speculation import (
    beside_drafter,
    decide_speculation,
    head_in_blocks_of,
    in_blocks_of,
    without_drafter,
)
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.memory import ENCODED_AT_ONCE
from quire.config.resolved import Choice, DraftPlan, Resolved, StepLimits
from quire.config.scheduler import SchedulerConfig


def resolve(
    asked: EngineConfig, model: ModelFacts, device: DeviceFacts, drafter: DraftPlan | HeadFacts | None = None
) -> Resolved:
    """Decide everything that was left open; a ConfigError says what is impossible and what to change.

    `drafter` is what was decided of the model, or found of the head, that drafts for this one.
    """
    choices: list[Choice] = []
    check_parallel(asked, model)
    check_encoder(asked, model)
    left = device if drafter is None else without_drafter(device, drafter)
    numbers = decide_numbers(asked, model, left, choices)
    model, holding = numbers.model, numbers.holding
    if drafter is not None:
        device = beside_drafter(device, drafter, numbers, asked.parallel)
    batch_invariant = decide_batch_invariance(asked, numbers, choices)
    room = decide_room(asked, numbers, device, drafter, choices, batch_invariant=batch_invariant)
    speculation = decide_speculation(asked, choices, drafter)
    limits = _step_limits(asked, model, device, room, choices)
    quantized = bool(model.schemes) and holding.keep_packed
    compiled = decide_compile(asked, model, limits, choices, cpu_core=holding.cpu_core, quantized=quantized)
    spare_experts, interval = decide_copies(asked.parallel, choices)
    return Resolved(
        dtype=holding.dtype,
        kv=room.kv,
        draft=in_blocks_of(room.kv, drafter) if isinstance(drafter, DraftPlan) else None,
        head=head_in_blocks_of(room.kv, drafter, holding.dtype) if isinstance(drafter, HeadFacts) else None,
        limits=limits,
        preemption=decide_preemption(asked.scheduler, room.kv, choices),
        preemption_costs=preemption_costs(model, device, room.kv, asked.parallel.ranks_per_sequence),
        policy=decide_policy(asked.scheduler, choices),
        policy_settings=policy_settings(asked.scheduler),
        enable_prefix_caching=_prefix_caching(asked.cache.enable_prefix_caching, choices),
        target_itl_ms=_target_itl(asked.scheduler, choices),
        queue_timeout=decide_queue_timeout(asked.scheduler, choices),
        speculation=speculation,
        device_plugin=asked.model.device_plugin,
        logits_processors=asked.model.processor_names,
        weight_bytes=room.budget.weights,
        tensor_share=room.budget.of_tensors,
        keep_packed=holding.keep_packed,
        quantization=numbers.quantization,
        random_weights=asked.model.load_format == "dummy",
        cpu_core=holding.cpu_core,
        uses_transformers=numbers.uses_transformers,
        cpu_threads=asked.model.cpu_threads,
        cpu_sharers=asked.server.num_local_engines,
        compile=compiled,
        batch_invariant=batch_invariant,
        offloaded_layers=room.offload.layers,
        expert_slots=room.offload.expert_slots,
        tensor_parallel_size=asked.parallel.tensor_parallel_size,
        attention_ranks=decide_attention_ranks(asked, choices),
        expert_parallel=asked.parallel.enable_expert_parallel,
        spare_experts=spare_experts,
        eplb_step_interval=interval,
        stage_ends=decide_stages(asked, model, choices),
        kv_of_stages=kv_of_stages(room.kv, model, asked.parallel),
        column_grain=column_grain(model),
        lora=room.lora,
        disk=decide_disk(asked, room.kv, speculation, choices),
        mmproj=model.mmproj,
        encoder_cache_tokens=(room.vision.device_tokens, room.vision.host_tokens),
        choices=tuple(choices),
    )


def _step_limits(
    asked: EngineConfig, model: ModelFacts, device: DeviceFacts, room: DeviceRoom, choices: list[Choice]
) -> StepLimits:
    seqs, tokens = room.step
    spec, lookahead = model.spec, asked.scheduler.num_lookahead_tokens
    return StepLimits(
        seqs,
        tokens,
        decide_max_model_len(asked, model, room.kv, tokens + lookahead, choices),
        asked.scheduler.long_prefill_token_threshold,
        lookahead,
        asked.scheduler.num_drafts,
        recompute_beyond=None if spec.angles_follow_length else spec.angles_change_at,
        max_encoded=0 if spec.encoder is None else ENCODED_AT_ONCE[device.kind],
        whole_images=spec.vision is not None and spec.vision.seen_whole > 0,
        num_stages=asked.parallel.pipeline_parallel_size,
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
