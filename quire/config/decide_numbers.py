"""Decisions of `resolve` about numbers: whose code computes a model, and in which numbers weights and KV are held."""

from dataclasses import dataclass

from quire.config.decide_compute import decide_dtype
from quire.config.decide_cpu import decide_cpu_core
from quire.config.decide_impl import decide_impl
from quire.config.decide_kv import decide_kv_dtype
from quire.config.decide_memory import decide_packed
from quire.config.decide_quantization import decide_quantization
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.holding import Holding
from quire.config.resolved import Choice
from quire.spec.quantization import Online


@dataclass(frozen=True, slots=True)
class Numbers:
    """What everything that takes memory or time is counted in."""

    model: ModelFacts
    """With the weights as they will be held: quantized, where that is asked for."""
    holding: Holding
    kv_dtype: str
    quantization: Online | None
    """What plain weights are quantized to as they are loaded."""
    uses_transformers: bool


def decide_numbers(asked: EngineConfig, model: ModelFacts, device: DeviceFacts, choices: list[Choice]) -> Numbers:
    """Depends on the device's memory only where packed weights stay packed because they would not fit otherwise."""
    uses_transformers = decide_impl(asked, model, choices)
    core = decide_cpu_core(asked, model, device, choices)
    choices.extend(Choice("weights", "in part", f"left out are {reason}") for reason in model.left_out)
    if asked.model.load_format == "dummy":
        choices.append(Choice("load_format", "dummy", "asked for: weights are random and answers mean nothing"))
    held, quantization = decide_quantization(asked, model, choices, cpu_core=core)
    dtype = decide_dtype(asked.model.dtype, held, device, choices, cpu_core=core)
    kv_dtype = decide_kv_dtype(asked, dtype, held, device, choices, cpu_core=core)
    keep_packed = decide_packed(asked, held, device, dtype, choices, cpu_core=core)
    holding = Holding(dtype, keep_packed, core, on_gpu=device.kind == "cuda")
    return Numbers(held, holding, kv_dtype, quantization, uses_transformers)
