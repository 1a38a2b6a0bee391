"""The metadata of a GGUF model as the config.json that it was converted from, as far as anything needs it.

Every architecture gets the fields that give its shape; those of `gguf_names` also get what their model files read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFHeader
from quire.models.loading.gguf_metadata import GGUFMetadata
from quire.models.loading.gguf_rope import rope_fields
from quire.models.loading.spans import TensorSpan

# GGUF architecture → model_type and class of transformers. Others keep their GGUF name and have no class.
_FAMILIES: dict[str, tuple[str, str]] = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
    "gpt2": ("gpt2", "GPT2LMHeadModel"),
    "cohere2": ("cohere2", "Cohere2ForCausalLM"),
    "gpt-oss": ("gpt_oss", "GptOssForCausalLM"),
}
_GEMMAS = ("gemma2", "gemma3")
_SCALED_BY_WIDTH = {"gemma2": 46, "gemma3": 62}
"""Layers of the one model of each family whose scores are scaled by width over heads, not by the size of a head."""
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
"""Gemma 2's, which its first files leave out."""
_USUAL_LOCAL_THETA = 10_000.0

_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}


def gguf_config(headers: Sequence[GGUFHeader]) -> dict[str, Any]:
    """The config of the model whose file, or parts in order, have these headers."""
    read = GGUFMetadata(headers[0])
    tensors = {tensor.name: tensor for header in headers for tensor in header.tensors}
    shape = _shape(read, tensors)
    config = _family(read) | shape | _norm(read) | _tokens(read, shape["vocab_size"])
    config["tie_word_embeddings"] = "output.weight" not in tensors
    if read.architecture == "gpt2":
        return _as_gpt2(config)
    config |= rope_fields(read, headers, shape["head_dim"], shape["max_position_embeddings"])
    config |= _windows(read, shape["num_hidden_layers"])
    config |= _gemma(read, shape) if read.architecture in _GEMMAS else {"hidden_act": "silu"}
    return config | _biases(read, tensors)


def _as_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    """GPT-2's config has names of its own, and no word for heads that are all alike."""
    kept = {name: value for name, value in config.items() if name not in ("num_key_value_heads", "head_dim")}
    return {_GPT2_NAMES.get(name, name): value for name, value in kept.items()} | {"activation_function": "gelu_new"}


def _family(read: GGUFMetadata) -> dict[str, Any]:
    model_type, name = _FAMILIES.get(read.architecture, (read.architecture, ""))
    if read.architecture == "llama" and read.size_or_none("expert_count", least=0):
        model_type, name = "mixtral", "MixtralForCausalLM"
    elif read.architecture == "llama" and read.size_or_none("attention.sliding_window", least=0):
        model_type, name = "mistral", "MistralForCausalLM"
    return {"model_type": model_type} | ({"architectures": [name]} if name else {})


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
    keys = {"rms_norm_eps": "layer_norm_rms_epsilon", "layer_norm_epsilon": "layer_norm_epsilon"}
    values = {field: read.number_or_none(f"attention.{name}") for field, name in keys.items()}
    return {field: value for field, value in values.items() if value is not None}


def _tokens(read: GGUFMetadata, vocab_size: int) -> dict[str, Any]:
    ids = {role: read.token_or_none(role, vocab_size) for role in ("bos", "eos", "eot", "eom", "padding")}
    # A chat model may end its turn with another token than its texts; each of them ends an answer.
    ends = list(dict.fromkeys(ids[role] for role in ("eos", "eot", "eom") if ids[role] is not None))
    eos = ends[0] if len(ends) == 1 else ends or None
    fields = {"bos_token_id": ids["bos"], "eos_token_id": eos, "pad_token_id": ids["padding"]}
    return {name: value for name, value in fields.items() if value is not None}


def _windows(read: GGUFMetadata, num_layers: int) -> dict[str, Any]:
    """The window and which layers have it; where the file does not say which, the family's own rule holds."""
    window = read.size_or_none("attention.sliding_window", least=0)
    if not window:
        # Gemma's config fills in a window where none is given.
        return {"layer_types": ["full_attention"] * num_layers} if read.architecture in _GEMMAS else {}
    slides = read.flags_by_layer("attention.sliding_window_pattern", num_layers)
    if slides is not None:
        kinds = ["sliding_attention" if flag else "full_attention" for flag in slides]
        return {"sliding_window": window, "layer_types": kinds}
    pattern = read.get("attention.sliding_window_pattern")
    is_rule = isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0
    return {"sliding_window": window} | ({"sliding_window_pattern": pattern} if is_rule else {})


def _gemma(read: GGUFMetadata, shape: Mapping[str, Any]) -> dict[str, Any]:
    scale = read.number_or_none("attention.scale")
    by_width = shape["num_hidden_layers"] == _SCALED_BY_WIDTH[read.architecture]
    size = shape["hidden_size"] // shape["num_attention_heads"] if by_width else shape["head_dim"]
    fields: dict[str, Any] = {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": size if scale is None else scale**-2,
    }
    if read.architecture == "gemma3":
        fields["rope_local_base_freq"] = read.number_or_none("rope.freq_base_swa") or _USUAL_LOCAL_THETA
    for name, usual in _CAPS.items():
        cap = read.number_or_none(name) or (usual if read.architecture == "gemma2" else None)
        fields |= {} if cap is None else {name: cap}
    return fields


def _biases(read: GGUFMetadata, tensors: Mapping[str, TensorSpan]) -> dict[str, Any]:
    """Biases that a config.json turns on; Qwen2 has its own without a word."""
    fields = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}
    found = {field: True for field, name in fields.items() if name in tensors}
    return {} if read.architecture == "qwen2" else found
