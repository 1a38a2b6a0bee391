"""Decisions of `resolve` about a CPU: whether the native core computes."""

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.config.resolved import Choice
from quire.core.errors import ConfigError


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
    if asked.model.cpu_compute == "exact":
        choices.append(Choice("cpu_compute", "exact", "asked for"))
        return False
    if not device.has_cpu_core:
        choices.append(Choice("cpu_compute", "torch", "quire's native core is not installed here"))
        return False
    if not model.spec.is_described:
        choices.append(Choice("cpu_compute", "torch", "the modules of transformers are torch's"))
        return False
    choices.append(Choice("cpu_compute", "fast", "the native core, on weights as they are stored"))
    return True
