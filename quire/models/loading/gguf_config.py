"""The metadata of a GGUF model as the config.json that it was converted from, as far as anything needs it.

Every architecture gets the fields that give its shape; its family adds what only it reads.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.family import GGUFModel
from quire.models.loading.gguf_header import GGUFHeader
from quire.models.loading.gguf_metadata import GGUFMetadata
from quire.models.loading.gguf_rope import rope_fields
from quire.models.loading.spans import TensorSpan
from quire.models.registry import GGUF_ARCHITECTURES, family_of


def gguf_config(headers: Sequence[GGUFHeader]) -> dict[str, Any]:
    """The config of the model whose file, or parts in order, have these headers."""
    read = GGUFMetadata(headers[0])
    tensors = {tensor.name: tensor for header in headers for tensor in header.tensors}
    shape = _shape(read, tensors)
    model_type = GGUF_ARCHITECTURES.get(read.architecture)
    config = {
        "model_type": model_type or read.architecture,
        **shape,
        **_norm(read),
        **_tokens(read, shape["vocab_size"]),
    }
    config["tie_word_embeddings"] = "output.weight" not in tensors
    config |= rope_fields(read, headers, shape["head_dim"], shape["max_position_embeddings"])
    config |= _biases(tensors)
    if model_type is None:
        return config | _windows(read, shape["num_hidden_layers"])
    family = family_of(model_type)
    config |= _windows(read, shape["num_hidden_layers"], has_default="sliding_window" in family.defaults)
    return config | family.from_gguf(GGUFModel(read, shape, tensors))


def _shape(read: GGUFMetadata, tensors: Mapping[str, TensorSpan]) -> dict[str, Any]:
    hidden_size = read.size("embedding_length")
    num_heads = read.largest("attention.head_count") or read.size("attention.head_count")
    shape: dict[str, Any] = {
        "num_hidden_layers": read.size("block_count"),
        "hidden_size": hidden_size,
        "num_attention_heads": num_heads,
        "num_key_value_heads": read.largest("attention.head_count_kv") or num_heads,
        "head_dim": read.size_or_none("attention.key_length") or max(1, hidden_size // num_heads),
        "max_position_embeddings": read.size("context_length"),
        "vocab_size": _vocab_size(read, tensors),
    }
    for field, name in {"intermediate_size": "feed_forward_length", "kv_lora_rank": "attention.kv_lora_rank"}.items():
        size = read.largest(name)
        shape |= {} if size is None else {field: size}
    return shape


def _vocab_size(read: GGUFMetadata, tensors: Mapping[str, TensorSpan]) -> int:
    """What the embedding has rows for: logits are that wide, whatever the metadata says."""
    embedding = tensors.get("token_embd.weight")
    if embedding is not None and len(embedding.shape) == 2 and embedding.shape[0]:
        return embedding.shape[0]
    size = read.size_or_none("vocab_size") or read.num_tokens()
    if not size:
        raise CheckpointError(f"{read.source} tells its vocabulary's size nowhere; convert the model again.")
    return size


def _norm(read: GGUFMetadata) -> dict[str, Any]:
    """Under every name that a family may look for: none of their defaults may win over what the file says."""
    keys = {
        "rms_norm_eps": "layer_norm_rms_epsilon",
        "layer_norm_eps": "layer_norm_epsilon",
        "layer_norm_epsilon": "layer_norm_epsilon",
    }
    values = {field: read.number_or_none(f"attention.{name}") for field, name in keys.items()}
    return {field: value for field, value in values.items() if value is not None}


def _tokens(read: GGUFMetadata, vocab_size: int) -> dict[str, Any]:
    ids = {role: read.token_or_none(role, vocab_size) for role in ("bos", "eos", "eot", "eom", "padding")}
    # A chat model may end its turn with another token than its texts; each of them ends an answer.
    ends = list(dict.fromkeys(ids[role] for role in ("eos", "eot", "eom") if ids[role] is not None))
    eos = ends[0] if len(ends) == 1 else ends or None
    fields = {"bos_token_id": ids["bos"], "eos_token_id": eos, "pad_token_id": ids["padding"]}
    return {name: value for name, value in fields.items() if value is not None}


def _windows(read: GGUFMetadata, num_layers: int, *, has_default: bool = False) -> dict[str, Any]:
    """The window and which layers have it; where the file does not say which, the family's own rule holds."""
    window = read.size_or_none("attention.sliding_window", least=0)
    if not window:
        # the family would fill in a window where none is given
        return {"layer_types": ["full_attention"] * num_layers} if has_default else {}
    slides = read.flags_by_layer("attention.sliding_window_pattern", num_layers)
    if slides is not None:
        kinds = ["sliding_attention" if flag else "full_attention" for flag in slides]
        return {"sliding_window": window, "layer_types": kinds}
    pattern = read.get("attention.sliding_window_pattern")
    is_rule = isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0
    return {"sliding_window": window} | ({"sliding_window_pattern": pattern} if is_rule else {})


def _biases(tensors: Mapping[str, TensorSpan]) -> dict[str, Any]:
    """Biases that a config.json turns on; families that always have them ask for none."""
    fields = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}
    return {field: True for field, name in fields.items() if name in tensors}
