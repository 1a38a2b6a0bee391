"""A config.json as the shape of a model, for every family that uses the usual field names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.hf_fields import HFFields
from quire.models.loading.hf_windows import Windows, layer_windows

_MOST_LAYERS = 10_000
_SPELLED = {"yarn": "YaRN"}

ENCODER_TYPES = ("bert", "roberta", "xlm-roberta", "camembert")
_POSITIONS_BEHIND_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Their first token has the position behind that of padding, so that the table holds fewer than it has rows."""

_BERT = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
_ROBERTA = {**_BERT, "pad_token_id": 1}
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
    "bert": {**_BERT, "vocab_size": 30_522},
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
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
    angles_change_at: int | None
    angles_follow_length: bool

    @property
    def is_encoder(self) -> bool:
        """Whether it only embeds: every token sees all others, and there is no next one."""
        return self.model_type in ENCODER_TYPES


def read_hf_config(config: Mapping[str, Any], source: str) -> HFShape:
    """The shape that a parsed config.json describes; `source` names it in errors."""
    fields, model_type = _text_fields(config, source)
    if fields.has("kv_lora_rank"):
        raise CheckpointError(
            f"{source} describes {model_type} with latent attention (MLA), which quire does not have yet."
        )
    num_layers = fields.size("num_hidden_layers", "n_layer", "num_layers", "n_layers", most=_MOST_LAYERS)
    hidden_size = fields.size("hidden_size", "n_embd", "d_model")
    num_heads = fields.size("num_attention_heads", "n_head", "num_heads", "n_heads")
    num_kv_heads = _num_kv_heads(fields) or num_heads
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"{source} gives {num_heads} heads and {num_kv_heads} KV heads, which do not divide them."
        )
    max_position, position_source = _max_position(fields, model_type)
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
        angles_change_at=_angles_change_at(fields),
        angles_follow_length=_rope_kind(fields) == "dynamic",
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


def _num_kv_heads(fields: HFFields) -> int | None:
    """None: as many as there are heads."""
    if fields.flag("multi_query", False):  # StarCoder's first family
        return 1
    return fields.size_or_none("num_key_value_heads") or fields.nested("attn_config").size_or_none("kv_n_heads")


def _head_dim(fields: HFFields, hidden_size: int, num_heads: int) -> int:
    given = fields.size_or_none("head_dim")
    if given is None and hidden_size % num_heads:
        raise CheckpointError(
            f"{fields.source} gives no head_dim, and {num_heads} heads do not divide its hidden size of {hidden_size}."
        )
    return given or hidden_size // num_heads


def _max_position(fields: HFFields, model_type: str) -> tuple[int, str]:
    """The longest context, and what says so: scaling stretches it, except where the config's length includes that."""
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length", "max_seq_len")
    longest = fields.size(*names)
    if model_type.startswith("gemma3"):
        return longest, "the checkpoint"
    if model_type in _POSITIONS_BEHIND_PADDING:
        return _behind_padding(fields, longest), "the checkpoint"
    for key in ("rope_scaling", "rope_parameters"):
        scaling = fields.nested(key)
        kind = scaling.text("rope_type", scaling.text("type", ""))
        factor = scaling.number_or_none("factor")
        original = scaling.size_or_none("original_max_position_embeddings") if kind == "yarn" else longest
        if kind not in {"yarn", "linear", "dynamic"} or factor is None or original is None:
            continue
        if original * factor > longest:
            return int(
                original * factor
            ), f"the checkpoint's {key} ({_SPELLED.get(kind, kind)}, {factor:g} × {original:,})"
    return longest, "the checkpoint"


def _behind_padding(fields: HFFields, rows: int) -> int:
    padding = fields.size_or_none("pad_token_id", least=0) or 0
    if rows <= padding + 1:
        raise CheckpointError(
            f"{fields.source} gives max_position_embeddings as {rows} and pad_token_id as {padding}, behind which no "
            "positions are left."
        )
    return rows - padding - 1


def _rope_kind(fields: HFFields) -> str:
    for key in ("rope_scaling", "rope_parameters"):
        scaling = fields.nested(key)
        kind = scaling.text("rope_type", scaling.text("type", ""))
        if kind:
            return "longrope" if kind == "su" else kind
    return "default"


def _angles_change_at(fields: HFFields) -> int | None:
    """The length beyond which a prompt is computed with other angles; None where length does not matter."""
    kind = _rope_kind(fields)
    if kind == "dynamic":
        return fields.size("max_position_embeddings")
    if kind != "longrope":
        return None
    name = "original_max_position_embeddings"
    nested = fields.nested("rope_scaling").size_or_none(name) or fields.nested("rope_parameters").size_or_none(name)
    return fields.size_or_none(name) or nested


def _dtype(config: Mapping[str, Any], fields: HFFields) -> str | None:
    outer = HFFields(config, fields.source)
    for source in (fields, outer):
        for name in ("dtype", "torch_dtype"):
            value = source.text(name, "")
            if value:
                return value.removeprefix("torch.")
    return None
