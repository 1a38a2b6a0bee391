"""Tiny random models of transformers, and their conversion to GGUF as llama.cpp's converter does it.

Written from the converter's rules and the `gguf` package's own name tables, not from quire's, so that the two check
each other.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import quants
from torch import Tensor

_USUAL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 48,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GEMMA: dict[str, Any] = {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32, "rms_norm_eps": 1e-6}
_GPT2: dict[str, Any] = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": 256, "vocab_size": 48}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**_USUAL, "rope_theta": 50_000.0, "tie_word_embeddings": False}),
    "llama-tied-biased": ("Llama", {**_USUAL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {**_USUAL, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**_USUAL, "head_dim": 32, "tie_word_embeddings": False}),
    "gemma2": ("Gemma2", {**_USUAL, **_GEMMA}),
    "gemma3": ("Gemma3", {**_USUAL, **_GEMMA, "num_hidden_layers": 7}),
    "phi3": ("Phi3", {**_USUAL, "tie_word_embeddings": False}),
    "gpt2": ("GPT2", {**_GPT2, "bos_token_id": 1, "eos_token_id": 2}),
}
_HEADS = {"GPT2": "LMHeadModel"}
_CONFIGS = {"Gemma3": "Gemma3TextConfig"}


def config_class(family: str) -> Any:
    return getattr(transformers, _CONFIGS.get(family, f"{family}Config"))


def model_class(family: str) -> Any:
    return getattr(transformers, family + _HEADS.get(family, "ForCausalLM"))


def tiny_model(name: str) -> Any:
    """A model whose every weight is random, norms included."""
    family, fields = MODELS[name]
    torch.manual_seed(0)
    model = model_class(family)(config_class(family)(**fields))
    for parameter in model.parameters():
        # Multiples of 1/1024, which adding and taking away 1 leaves as they are.
        parameter.data = (torch.randn_like(parameter) * 100).round() / 1024
    return model.eval()


def weights(model: Any) -> dict[str, Tensor]:
    """What its checkpoint would hold: tied matrices once."""
    tied = model.config.tie_word_embeddings
    return {name: value for name, value in model.state_dict().items() if not (tied and name == "lm_head.weight")}


def write_gguf(path: Path, name: str, model: Any, kind: str = "F32", extra: dict[str, Any] | None = None) -> Path:
    """The model as a GGUF file with matrices of this type."""
    architecture = name.partition("-")[0]
    writer = gguf.GGUFWriter(path, architecture)
    _write_metadata(writer, architecture, model.config)
    for key, value in (extra or {}).items():
        writer.add_array(key, value) if isinstance(value, list) else writer.add_float32(key, value)
    for gguf_name, values in converted(name, model):
        data, number = _packed(values, kind)
        writer.add_tensor(gguf_name, data, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(name: str, model: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors under GGUF names and in GGUF layout."""
    architecture = name.partition("-")[0]
    number = next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == architecture)
    names = gguf.get_tensor_name_map(number, model.config.num_hidden_layers)
    for hf_name, original in weights(model).items():
        values = original
        if architecture == "llama" and hf_name.rpartition(".")[0].endswith(("q_proj", "k_proj")):
            is_query = "q_proj" in hf_name
            heads = model.config.num_attention_heads if is_query else model.config.num_key_value_heads
            values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if architecture.startswith("gemma") and hf_name.endswith("norm.weight"):
            values = values + 1
        if architecture == "gpt2" and hf_name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            values = values.t()
        gguf_name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None, hf_name
        yield gguf_name, values


def _packed(values: Tensor, kind: str) -> tuple[Any, Any]:
    number = gguf.GGMLQuantizationType[kind if values.dim() > 1 else "F32"]
    return quants.quantize(np.ascontiguousarray(values.numpy()), number), number


def _write_metadata(writer: gguf.GGUFWriter, architecture: str, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    if architecture == "gpt2":
        writer.add_feed_forward_length(config.n_inner)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_pad_token_id(config.pad_token_id)
    parameters = config.rope_parameters
    writer.add_rope_freq_base(parameters.get("full_attention", parameters)["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture.startswith("gemma"):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
