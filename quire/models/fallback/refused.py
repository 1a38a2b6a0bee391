"""What a config.json already tells about a model that the fallback cannot run."""

from collections.abc import Iterator, Mapping
from typing import Any

_WHAT_RUNS = (
    "The fallback runs decoders whose every layer attends to the positions before a token, through transformers' "
    "AttentionInterface; docs/models.md lists those that were tried."
)
_TYPES = {
    "llama4": "its layers scale attention by the length of transformers' own cache",
    "llama4_text": "its layers scale attention by the length of transformers' own cache",
    "phi3_v": "its code lies in the checkpoint, which quire never runs, and not in transformers; quire's own family "
    "runs it, without --model-impl transformers",
}
_ANGLES = ("dynamic", "longrope", "su")


def refusal(model: str, why: str) -> str:
    """`model` says where it is and of which type."""
    return f"{model}, which the fallback to transformers cannot run: {why}. {_WHAT_RUNS}"


def problem_of(config: Mapping[str, Any]) -> str | None:
    """Why this model is refused, or None."""
    by_type = _TYPES.get(str(config.get("model_type")))
    if by_type is not None:
        return by_type
    parts = [config, *(value for value in config.values() if isinstance(value, Mapping))]
    for part in parts:
        quantized = part.get("quantization_config")
        if quantized is not None:
            method = quantized.get("quant_method", "unknown") if isinstance(quantized, Mapping) else "unknown"
            return f"its weights are quantized (quantization_config: {method}), which quire's own families alone read"
        if part.get("is_encoder_decoder"):
            return "it has an encoder and a decoder (is_encoder_decoder)"
        if part.get("add_cross_attention"):
            return "its layers attend to another model's states (add_cross_attention)"
    kind = next((kind for kind in _rope_kinds(config) if kind in _ANGLES), None)
    if kind is not None:
        return f"its position angles change with the length of a sequence ({kind}), and transformers keeps one set"
    return None


def _rope_kinds(values: Mapping[str, Any]) -> Iterator[str]:
    """The kinds of all angles, which models with several sets keep by the layers' names."""
    for name in ("rope_parameters", "rope_scaling", "text_config"):
        inner = values.get(name)
        if isinstance(inner, Mapping):
            yield from _rope_kinds(inner)
            for angles in (inner, *(value for value in inner.values() if isinstance(value, Mapping))):
                yield from (str(angles[key]) for key in ("rope_type", "type") if key in angles)
