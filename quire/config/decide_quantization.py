"""Decisions of `resolve` about quantization: whether plain weights are quantized as they are loaded."""

from dataclasses import replace

from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.resolved import Choice
from quire.core.errors import ConfigError
from quire.core.ggml_types import PACKED
from quire.spec.quantization import Online, online_schemes


def decide_quantization(
    asked: EngineConfig, model: ModelFacts, choices: list[Choice], *, cpu_core: bool
) -> tuple[ModelFacts, Online | None]:
    """The model as it will be held, and what its weights are quantized to; None: they stay as they are stored."""
    wanted = asked.model.quantization
    if wanted is None:
        return model, None
    if asked.model.packed_weights == "expand":
        raise ConfigError(f"--quantization is {wanted}, but --packed-weights is expand; leave one of them out.")
    if model.schemes:
        _check_same(wanted, model)
        choices.append(Choice("quantization", wanted, "the checkpoint's own"))
        return model, None
    packed = next((kind for kind in model.weight_bytes if kind in PACKED), None)
    if packed is not None or not model.spec.is_described:
        what = f"holds {packed} weights" if packed else "runs on the modules of transformers"
        raise ConfigError(f"--quantization is {wanted}, but {model.name} {what}; leave --quantization out.")
    if cpu_core and wanted == "fp8":
        raise ConfigError(
            "--quantization is fp8, which the native core of CPUs does not multiply by; use --quantization int8."
        )
    choices.append(Choice("quantization", wanted, "asked for: the weights of layers, as they are loaded"))
    return replace(model, schemes=online_schemes(model.spec, wanted)), wanted


def _check_same(wanted: Online, model: ModelFacts) -> None:
    kinds = {scheme.codes.partition("_")[0] for scheme in model.schemes.values()}
    if kinds != {wanted}:
        raise ConfigError(
            f"--quantization is {wanted}, but {model.name} is quantized already ({', '.join(sorted(kinds))}); leave "
            "--quantization out, or take the model's 16-bit weights."
        )
