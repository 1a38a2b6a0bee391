"""The metadata that llama.cpp's converter writes for each architecture."""

from typing import Any

import gguf

_LAYER_NORMS = ("gpt2", "stablelm", "gptneox", "falcon", "command-r", "cohere2", "bert", "nomic-bert")
_WITHOUT_BASE = ("gpt2", "stablelm", "gptneox", "falcon", "bert")
"""Whose rotary base, if they have one, is not written."""


def write_metadata(writer: gguf.GGUFWriter, architecture: str, config: Any) -> None:
    """What a file says of a model of transformers."""
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_feed_forward_length(_feed_forward(architecture, config))
    _write_norms(writer, architecture, config)
    _write_rope(writer, architecture, config)
    _write_heads(writer, architecture, config)
    _write_scales(writer, architecture, config)
    _write_experts(writer, config)
    if architecture == "deepseek2":
        _write_latents(writer, config)
    for role in ("bos", "eos", "pad"):
        token = getattr(config, f"{role}_token_id", None)
        if token is not None:
            getattr(writer, f"add_{role}_token_id")(token)
    if architecture in ("gptneox", "stablelm"):
        writer.add_parallel_residual(config.use_parallel_residual)
    if architecture.endswith("bert"):
        writer.add_causal_attention(False)
        writer.add_token_type_count(config.type_vocab_size)


def _feed_forward(architecture: str, config: Any) -> int:
    if architecture == "falcon":
        return int(4 * config.hidden_size)
    if architecture == "llama4":
        return int(config.intermediate_size_mlp)
    return int(config.n_inner if architecture == "gpt2" else config.intermediate_size)


def _write_norms(writer: gguf.GGUFWriter, architecture: str, config: Any) -> None:
    if architecture not in _LAYER_NORMS:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        return
    given = getattr(config, "layer_norm_eps", None)
    writer.add_layer_norm_eps(config.layer_norm_epsilon if given is None else given)


def _write_rope(writer: gguf.GGUFWriter, architecture: str, config: Any) -> None:
    parameters = getattr(config, "rope_parameters", None) or {}
    parameters = parameters.get("full_attention", parameters)
    if architecture not in _WITHOUT_BASE:
        writer.add_rope_freq_base(parameters["rope_theta"])
    if architecture in ("stablelm", "gptneox", "llama", "granite", "smollm3", "cohere2", "phi3"):
        size = config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(int(parameters.get("partial_rotary_factor", 1.0) * size))
    if architecture in ("command-r", "cohere2"):
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if architecture == "gpt-oss":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])


def _write_heads(writer: gguf.GGUFWriter, architecture: str, config: Any) -> None:
    if architecture == "falcon":
        writer.add_head_count_kv(config.num_kv_heads)
    elif architecture not in ("gpt2", "gptneox", "bert", "nomic-bert", "deepseek2"):
        writer.add_head_count_kv(config.num_key_value_heads)
    if architecture in ("qwen3", "qwen3vl", "qwen3moe", "gemma2", "gemma3", "gpt-oss", "llama4"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture in ("gemma2", "gemma3", "cohere2", "gpt-oss"):
        writer.add_sliding_window(config.sliding_window)


def _write_experts(writer: gguf.GGUFWriter, config: Any) -> None:
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    count = next((getattr(config, name) for name in names if getattr(config, name, None)), None)
    if count is None:
        return
    writer.add_expert_count(count)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "llama4_text":
        writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
    if config.model_type in ("gpt_oss", "llama4_text"):
        writer.add_expert_feed_forward_length(config.intermediate_size)


def _write_latents(writer: gguf.GGUFWriter, config: Any) -> None:
    """Of V3 as newer converters do, which call the latent a head; of V2 as older ones did."""
    is_v3 = config.model_type == "deepseek_v3"
    key, value = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    if is_v3:
        writer.add_key_length_mla(key)
        writer.add_value_length_mla(value)
        key, value = config.kv_lora_rank + config.qk_rope_head_dim, config.kv_lora_rank
    writer.add_key_length(key)
    writer.add_value_length(value)
    writer.add_head_count_kv(1 if is_v3 else config.num_attention_heads)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    if config.rope_parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(is_v3)
    if config.n_group is not None:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if is_v3 else gguf.ExpertGatingFuncType.SOFTMAX)


def _write_scales(writer: gguf.GGUFWriter, architecture: str, config: Any) -> None:
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture in ("command-r", "cohere2"):
        writer.add_logit_scale(config.logit_scale)
    if architecture == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
