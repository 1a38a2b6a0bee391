"""Parameters of a dense decoder counted from its shape alone, for a config.json that comes without weights."""

from quire.core.errors import CheckpointError
from quire.models.loading.hf_config import HFShape

# Families built of RMS norm, rotary attention and a gated MLP, by what sets them apart.
_GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "smollm3")
_QKV_BIAS = ("qwen2",)
_QK_NORM = ("qwen3", "gemma3_text")
_NORMS_A_LAYER = {"gemma2": 4, "gemma3_text": 4}


def count_parameters(shape: HFShape) -> int:
    """Parameters of the model, tied matrices once; a CheckpointError for families that cannot be counted this way."""
    if shape.model_type == "gpt2":
        return _gpt2(shape)
    if shape.model_type in _GATED:
        return _gated(shape)
    raise CheckpointError(
        f"{shape.fields.source} describes {shape.model_type}, whose weights quire cannot count without their files "
        f"(it can for {', '.join((*_GATED, 'gpt2'))}); add the .safetensors files."
    )


def _gated(shape: HFShape) -> int:
    fields, hidden = shape.fields, shape.hidden_size
    embedding = shape.vocab_size * hidden
    norms = _NORMS_A_LAYER.get(shape.model_type, 2) * hidden
    layer = _attention(shape) + _gated_mlp(shape) + norms
    head = 0 if fields.flag("tie_word_embeddings", False) else embedding
    return embedding + shape.num_layers * layer + hidden + head


def _attention(shape: HFShape) -> int:
    fields, hidden = shape.fields, shape.hidden_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    count = 2 * hidden * queries + 2 * hidden * keys
    if fields.flag("attention_bias", False):
        count += queries + 2 * keys + hidden
    elif shape.model_type in _QKV_BIAS:
        count += queries + 2 * keys
    if shape.model_type in _QK_NORM:
        count += 2 * shape.head_dim
    return count


def _gated_mlp(shape: HFShape) -> int:
    width = shape.fields.size("intermediate_size")
    bias = 2 * width + shape.hidden_size if shape.fields.flag("mlp_bias", False) else 0
    return 3 * shape.hidden_size * width + bias


def _gpt2(shape: HFShape) -> int:
    hidden = shape.hidden_size
    width = shape.fields.size_or_none("n_inner") or 4 * hidden
    norms = 2 * 2 * hidden
    attention = hidden * 3 * hidden + 3 * hidden + hidden * hidden + hidden
    mlp = 2 * hidden * width + width + hidden
    embeddings = (shape.vocab_size + shape.max_position) * hidden
    return embeddings + shape.num_layers * (norms + attention + mlp) + 2 * hidden
