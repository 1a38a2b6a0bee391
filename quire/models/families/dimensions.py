"""Dimensions: what a config says of a model's shape in the fields that all families share, and the config itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.hf_windows import Windows, layer_windows

_MOST_LAYERS = 10_000
_SPELLED = {"yarn": "YaRN"}


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What every family starts from."""

    fields: HFFields
    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    max_position_source: str
    windows: Windows
    """By layer; None attends to everything."""

    @property
    def source(self) -> str:
        """What the config is called in errors."""
        return self.fields.source


def read_dimensions(fields: HFFields, architecture: str) -> Dimensions:
    """From a config over its family's defaults."""
    source = fields.source
    num_layers = fields.size("num_hidden_layers", "n_layer", "num_layers", "n_layers", most=_MOST_LAYERS)
    hidden_size = fields.size("hidden_size", "n_embd", "d_model")
    num_heads = fields.size("num_attention_heads", "n_head", "num_heads", "n_heads")
    num_kv_heads = fields.size_or_none("num_key_value_heads") or num_heads
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"{source} gives {num_heads} heads and {num_kv_heads} KV heads, which do not divide them."
        )
    max_position, position_source = _max_position(fields)
    return Dimensions(
        fields=fields,
        architecture=architecture,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=_head_dim(fields, hidden_size, num_heads),
        vocab_size=fields.size("vocab_size"),
        max_position=max_position,
        max_position_source=position_source,
        windows=layer_windows(fields, num_layers, max_position),
    )


def text_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the language model, which models with several parts keep in `text_config`; null is missing."""
    inner = config.get("text_config")
    values = {**config, **inner} if isinstance(inner, dict) else config
    return {name: value for name, value in values.items() if value is not None}


def without_shared_heads(values: dict[str, Any]) -> dict[str, Any]:
    """For families whose every head has a key of its own, whatever a config says."""
    return {name: value for name, value in values.items() if name != "num_key_value_heads"}


def longest_position(fields: HFFields) -> int:
    """The length that the config gives, before any scaling."""
    return fields.size(
        "max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length", "max_seq_len"
    )


def _head_dim(fields: HFFields, hidden_size: int, num_heads: int) -> int:
    given = fields.size_or_none("head_dim")
    if given is None and hidden_size % num_heads:
        raise CheckpointError(
            f"{fields.source} gives no head_dim, and {num_heads} heads do not divide its hidden size of {hidden_size}."
        )
    return given or hidden_size // num_heads


def _max_position(fields: HFFields) -> tuple[int, str]:
    """The longest context, and what says so: scaling stretches it, except where the config's length includes that."""
    longest = longest_position(fields)
    for key in ("rope_scaling", "rope_parameters"):
        scaling = fields.nested(key)
        kind = scaling.text("rope_type", scaling.text("type", ""))
        factor = scaling.number_or_none("factor")
        original = scaling.size_or_none("original_max_position_embeddings") if kind == "yarn" else longest
        if kind not in {"yarn", "linear", "dynamic"} or factor is None or original is None:
            continue
        if original * factor > longest:
            source = f"the checkpoint's {key} ({_SPELLED.get(kind, kind)}, {factor:g} × {original:,})"
            return int(original * factor), source
    return longest, "the checkpoint"
