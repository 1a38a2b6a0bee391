"""Decisions of `resolve` about a CPU: whether the native core computes, and what weights take in its layouts."""

from dataclasses import replace

from quire.config.dtypes import COMPUTE_DTYPES, DTYPE_BYTES
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Choice
from quire.core.errors import ConfigError
from quire.core.ggml_types import PACKED

_HELD_IN_4_BITS = ("Q4_0", "Q4_1", "Q4_K")
_GROUP = 32
_GROUP_BYTES = {4: 20, 8: 34}
"""By bits: bytes of 32 weights with their scale, and in 4 bits a minimum."""


def check_cpu_settings(asked: EngineConfig, device: DeviceFacts) -> None:
    """Refuse on a GPU what only a CPU can do, and the other way round."""
    settings = asked.model
    if device.kind == "cpu":
        if settings.attention_backend != "auto":
            raise ConfigError(
                f"--attention-backend is {settings.attention_backend}, which needs a GPU, but the model runs on "
                f"{device.name}; leave it out."
            )
        return
    compute, threads = settings.cpu_compute, settings.cpu_threads
    if compute != "fast" or threads is not None:
        name, value = ("compute", compute) if compute != "fast" else ("threads", threads)
        raise ConfigError(f"--cpu-{name} is {value}, but the model runs on {device.name}; leave it out.")


def decide_cpu_core(asked: EngineConfig, device: DeviceFacts, choices: list[Choice]) -> bool:
    """Whether the native core computes."""
    check_cpu_settings(asked, device)
    if device.kind != "cpu":
        return False
    if asked.model.model_impl == "transformers":
        choices.append(Choice("cpu_compute", "torch", "the modules of transformers are torch's"))
        return False
    if asked.model.cpu_compute == "exact":
        choices.append(Choice("cpu_compute", "exact", "asked for"))
        return False
    if not device.has_cpu_core:
        choices.append(Choice("cpu_compute", "torch", "quire's native core is not installed here"))
        return False
    choices.append(Choice("cpu_compute", "fast", "the native core, on weights as they are stored"))
    return True


def in_core_layouts(model: ModelFacts, keep_packed: bool) -> ModelFacts:
    """The same model as the native core holds it."""
    sizes: dict[str, int] = {}
    for stored, size in model.weight_bytes.items():
        kind = PACKED.get(stored)
        if kind is not None and keep_packed:
            groups = size // kind.num_bytes * kind.block // _GROUP
            sizes[stored] = groups * _GROUP_BYTES[4 if stored in _HELD_IN_4_BITS else 8]
        elif kind is not None:
            sizes[stored] = size // kind.num_bytes * kind.block * DTYPE_BYTES["float32"]
        elif stored in COMPUTE_DTYPES and keep_packed:
            sizes[f"{stored}, kept"] = size  # a name that nobody takes for floats to be converted
        else:
            sizes[stored] = size
    return replace(model, weight_bytes=sizes)
