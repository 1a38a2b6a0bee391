"""A config.json as the shape of a model, for every family that uses the usual field names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.hf_windows import Windows, layer_windows

_MOST_LAYERS = 10_000

_GEMMA = {"head_dim": 256, "tie_word_embeddings": True}
# What a family's own class fills in when its config.json leaves a field out; others must be written there.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": {**_GEMMA, "sliding_window": 4096, "max_position_embeddings": 8192},
    "gemma3_text": {
        **_GEMMA,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
    },
    "mistral": {"num_key_value_heads": 8},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False, "head_dim": 128},
    "gpt2": {"tie_word_embeddings": True},
}


@dataclass(frozen=True, slots=True)
class HFShape:
    """A model's shape, and the fields it was read from for those who need more."""

    fields: HFFields
    model_type: str
    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    max_position_source: str
    dtype: str | None
    windows: Windows


def read_hf_config(config: Mapping[str, Any], source: str) -> HFShape:
    """The shape that a parsed config.json describes; `source` names it in errors."""
    fields, model_type = _text_fields(config, source)
    if fields.has("kv_lora_rank"):
        raise CheckpointError(
            f"{source} describes {model_type} with latent attention (MLA), which quire does not have yet."
        )
    num_layers = fields.size("num_hidden_layers", "n_layer", "num_layers", most=_MOST_LAYERS)
    hidden_size = fields.size("hidden_size", "n_embd", "d_model")
    num_heads = fields.size("num_attention_heads", "n_head")
    num_kv_heads = fields.size_or_none("num_key_value_heads") or num_heads
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"{source} gives {num_heads} heads and {num_kv_heads} KV heads, which do not divide them."
        )
    max_position, position_source = _max_position(fields)
    return HFShape(
        fields=fields,
        model_type=model_type,
        architecture=_architecture(config, model_type),
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=_head_dim(fields, hidden_size, num_heads),
        vocab_size=fields.size("vocab_size"),
        max_position=max_position,
        max_position_source=position_source,
        dtype=_dtype(config, fields),
        windows=layer_windows(fields, model_type, num_layers, max_position),
    )


def _text_fields(config: Mapping[str, Any], source: str) -> tuple[HFFields, str]:
    """The fields of the language model, which models with several parts keep in `text_config`."""
    values = dict(config)
    inner = config.get("text_config")
    if isinstance(inner, dict):
        values = {**values, **inner}
    model_type = HFFields(values, source).text("model_type", "")
    model_type = "gemma3_text" if model_type == "gemma3" else model_type
    given = {name: value for name, value in values.items() if value is not None}
    return HFFields({**_DEFAULTS.get(model_type, {}), **given}, source), model_type or "a model"


def _architecture(config: Mapping[str, Any], model_type: str) -> str:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else model_type


def _head_dim(fields: HFFields, hidden_size: int, num_heads: int) -> int:
    given = fields.size_or_none("head_dim")
    if given is None and hidden_size % num_heads:
        raise CheckpointError(
            f"{fields.source} gives no head_dim, and {num_heads} heads do not divide its hidden size of {hidden_size}."
        )
    return given or hidden_size // num_heads


def _max_position(fields: HFFields) -> tuple[int, str]:
    """The longest context, and what says so. Only YaRN names a length of its own to scale from; others are included."""
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length")
    longest = fields.size(*names)
    for key in ("rope_scaling", "rope_parameters"):
        scaling = fields.nested(key)
        if scaling.text("rope_type", scaling.text("type", "")) != "yarn":
            continue
        factor = scaling.number_or_none("factor")
        original = scaling.size_or_none("original_max_position_embeddings")
        if factor is not None and original is not None and original * factor > longest:
            return int(original * factor), f"the checkpoint's {key} (YaRN, {factor:g} × {original:,})"
    return longest, "the checkpoint"


def _dtype(config: Mapping[str, Any], fields: HFFields) -> str | None:
    outer = HFFields(config, fields.source)
    for source in (fields, outer):
        for name in ("dtype", "torch_dtype"):
            value = source.text(name, "")
            if value:
                return value.removeprefix("torch.")
    return None
