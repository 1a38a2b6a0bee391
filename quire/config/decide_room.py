"""Decisions of `resolve` about room: what everything takes of a device's memory, and how many blocks of KV are left."""

from dataclasses import dataclass, replace

from quire.config.decide_compute import decide_step_size
from quire.config.decide_encoder import most_sequences
from quire.config.decide_kv import decide_kv_shape, spare_of_last_stage
from quire.config.decide_lora import decide_lora, lora_bytes
from quire.config.decide_memory import decide_cpu_blocks, decide_num_blocks, memory_budget
from quire.config.decide_numbers import Numbers
from quire.config.decide_offload import Offload, check_offload, decide_offload
from quire.config.decide_speculation import with_drafter
from quire.config.decide_vision import VisionRoom, decide_vision
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts
from quire.config.kv_layout import KVShape
from quire.config.memory import MemoryBudget
from quire.config.resolved import Choice, DraftPlan, KVLayout, LoraRoom


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """How one device's memory is divided."""

    step: tuple[int, int]
    """Sequences and tokens that a step holds at most."""
    kv: KVLayout
    budget: MemoryBudget
    offload: Offload
    lora: LoraRoom | None
    vision: VisionRoom


def decide_room(
    asked: EngineConfig,
    numbers: Numbers,
    device: DeviceFacts,
    drafter: DraftPlan | HeadFacts | None,
    choices: list[Choice],
    *,
    batch_invariant: bool,
) -> DeviceRoom:
    """KV comes last, and gets what everything else leaves."""
    model, holding, dtype = numbers.model, numbers.holding, numbers.holding.dtype
    most = most_sequences(asked, model, device, dtype)
    step = decide_step_size(asked.scheduler, model, device, choices, most)
    shape = decide_kv_shape(asked, model, numbers.kv_dtype, choices)
    if drafter is not None:
        spare = spare_of_last_stage(shape, numbers.kv_dtype, model, asked.parallel)
        shape = with_drafter(shape, drafter, dtype, numbers.kv_dtype, spare)
    cpu_blocks = decide_cpu_blocks(asked, device, shape, choices)
    offload = decide_offload(asked, model, device, holding, choices)
    lora = decide_lora(asked, numbers, choices, batch_invariant=batch_invariant)
    check_offload(offload, lora)
    _, step_tokens = step
    vision = decide_vision(asked, model, dtype, choices, step_tokens)
    budget = replace(
        memory_budget(asked, model, device, holding, step, shape, cpu_blocks, offload.away),
        adapters=lora_bytes(lora, step_tokens),
        images=vision.num_bytes,
    )
    blocks = decide_num_blocks(asked.cache, device, budget, shape, choices)
    layout = _layout(shape, blocks, cpu_blocks, numbers.kv_dtype)
    return DeviceRoom(step, layout, budget, offload, lora, vision)


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
