"""Decisions of `resolve` about a CPU: whether the native core computes."""

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Choice
from quire.core.errors import ConfigError
from quire.spec.cache import KeyValueCache, LatentCache
from quire.spec.experts import ExpertsSpec
from quire.spec.layer import LayerSpec
from quire.spec.lora import EXPERTS
from quire.spec.mlp import MlpSpec
from quire.spec.model import ModelSpec

CORE_ACTIVATIONS = frozenset({"silu", "gelu", "gelu_tanh", "relu", "clamped_swiglu"})
CORE_SCORES = frozenset({"softmax", "sigmoid", "sparsemixer"})
CORE_PANEL = 16
"""Those of `ops/cpu/record.py`, which this room cannot see; a test compares them."""


def check_cpu_settings(asked: EngineConfig, device: DeviceFacts) -> None:
    """Refuse on a GPU what only a CPU can do."""
    if device.kind == "cpu":
        return
    compute, threads = asked.model.cpu_compute, asked.model.cpu_threads
    if compute != "fast" or threads is not None:
        name, value = ("compute", compute) if compute != "fast" else ("threads", threads)
        raise ConfigError(f"--cpu-{name} is {value}, but the model runs on {device.name}; leave it out.")


def decide_cpu_core(asked: EngineConfig, model: ModelFacts, device: DeviceFacts, choices: list[Choice]) -> bool:
    """Whether the native core computes."""
    check_cpu_settings(asked, device)
    if device.kind != "cpu":
        return False
    value, reason = _cpu_compute(asked, model, device)
    choices.append(Choice("cpu_compute", value, reason))
    return value == "fast"


def _cpu_compute(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> tuple[str, str]:
    if asked.model.cpu_compute == "exact":
        return "exact", "asked for"
    if not device.has_cpu_core:
        return "torch", "quire's native core is not installed here"
    if not model.spec.is_described:
        return "torch", "the modules of transformers are torch's"
    if asked.parallel.num_ranks > 1:
        return "torch", "the native core's programs have no exchange between ranks"
    lacking = what_core_lacks(model.spec) or _lacking_for_adapters(asked, model.spec)
    if lacking is not None:
        return "torch", f"the native core has no {lacking}"
    return "fast", "the native core, on weights as they are stored"


def slow_for_lack_of(asked: EngineConfig, model: ModelFacts, device: DeviceFacts) -> str | None:
    """What keeps a native core that is there and wanted from running a model of quire's own; None: nothing."""
    is_wanted = device.kind == "cpu" and device.has_cpu_core and asked.model.cpu_compute == "fast"
    is_wanted = is_wanted and asked.parallel.num_ranks == 1
    if not is_wanted or not model.spec.is_described:
        return None
    return what_core_lacks(model.spec) or _lacking_for_adapters(asked, model.spec)


def _lacking_for_adapters(asked: EngineConfig, spec: ModelSpec) -> str | None:
    has_any = asked.lora.enable_lora and EXPERTS in (asked.lora.targets or ())
    return "adapters of experts" if has_any and spec.has_experts else None


def what_core_lacks(spec: ModelSpec) -> str | None:
    """Something a decoder needs that cannot be recorded for the native core; None: all of it can be."""
    return next((lacking for lacking in map(_lacking_for, spec.layers) if lacking is not None), None)


def _lacking_for(layer: LayerSpec) -> str | None:
    """Whatever is not known here is lacking, so that a new kind of layer is not taken for one that can be recorded."""
    if not isinstance(layer.attention.cache, KeyValueCache | LatentCache):
        return "attention to both sides" if layer.attention.cache is None else f"attention over {layer.attention.cache}"
    if layer.cross is not None:
        return "cross-attention"
    if type(layer.mlp) not in (MlpSpec, ExpertsSpec):
        return f"layers of the kind {type(layer.mlp).__name__}"
    if layer.mlp.activation not in CORE_ACTIVATIONS:
        return f"activation {layer.mlp.activation}"
    return _lacking_for_experts(layer.mlp) if isinstance(layer.mlp, ExpertsSpec) else None


def _lacking_for_experts(experts: ExpertsSpec) -> str | None:
    if experts.routing.scores not in CORE_SCORES:
        return f"routing by {experts.routing.scores}"
    hidden = experts.up.columns
    if experts.size % CORE_PANEL or hidden % CORE_PANEL:
        return f"experts of {experts.size} × {hidden}, which are not multiples of {CORE_PANEL}"
    return None
