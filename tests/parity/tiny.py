"""Tiny random models of every family, written as real checkpoints, and what `transformers` makes of them."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 199
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 2.5, 3.0, 4.0]}

_YARN_BY_MAGNITUDE = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "mscale": 0.8,
    "mscale_all_dim": 0.6,
}
_LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
}

CASES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-mqa-tied-biased": {
        "model_type": "llama",
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama-rope-llama3": {"model_type": "llama", "rope_scaling": _LLAMA3},
    "llama-rope-linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-rope-yarn": {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "llama-rope-dynamic": {
        "model_type": "llama",
        "max_position_embeddings": 64,
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    },
    "mistral": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2-windows": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 2,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "gemma2": {"model_type": "gemma2", "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "gemma3": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 7,
        "head_dim": 16,
        "sliding_window": 8,
        "query_pre_attn_scalar": 16,
    },
    "phi3": {"model_type": "phi3"},
    "phi3-longrope": {
        "model_type": "phi3",
        "original_max_position_embeddings": 64,
        "partial_rotary_factor": 0.5,
        "rope_scaling": _LONGROPE,
    },
    "phi4-mini": {
        "model_type": "phi3",
        "original_max_position_embeddings": 64,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {**_LONGROPE, "short_factor": [1.0] * 6, "long_factor": [2.0] * 6},
        "tie_word_embeddings": True,
    },
    "gpt2": {"model_type": "gpt2"},
    "olmo2": {"model_type": "olmo2"},
    "granite": {
        "model_type": "granite",
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.5,
    },
    "smollm3": {"model_type": "smollm3", "num_hidden_layers": 5},
    "stablelm": {"model_type": "stablelm", "use_qkv_bias": True},
    "stablelm-parallel": {"model_type": "stablelm", "use_parallel_residual": True, "qk_layernorm": True},
    "gpt_neox": {"model_type": "gpt_neox"},
    "gpt_neox-sequential": {"model_type": "gpt_neox", "use_parallel_residual": False, "rotary_pct": 0.5},
    "opt": {"model_type": "opt", "ffn_dim": 112, "word_embed_proj_dim": 64},
    "opt-350m": {"model_type": "opt", "ffn_dim": 112, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
    "falcon": {"model_type": "falcon"},
    "falcon-new": {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True},
    "falcon-sequential": {"model_type": "falcon", "multi_query": False, "parallel_attn": False},
    "cohere": {"model_type": "cohere", "logit_scale": 0.5},
    "cohere-normed": {"model_type": "cohere", "use_qk_norm": True, "logit_scale": 0.5},
    "cohere2": {"model_type": "cohere2", "sliding_window": 8, "logit_scale": 0.5},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2},
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
        "mlp_only_layers": [1],
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 48,
        "head_dim": 32,
        "norm_topk_prob": True,
        "decoder_sparse_step": 2,
    },
    "olmoe": {"model_type": "olmoe", "num_experts": 5, "num_experts_per_tok": 2},
    "granitemoe": {
        "model_type": "granitemoe",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.6,
        "logits_scaling": 0.5,
    },
    "glm4_moe": {
        "model_type": "glm4_moe",
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 48,
        "n_group": 4,
        "topk_group": 2,
        "n_shared_experts": 2,
        "routed_scaling_factor": 1.7,
        "use_qk_norm": True,
        "head_dim": 16,
    },
    "llama4": {
        "model_type": "llama4_text",
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 80,
        "interleave_moe_layer_step": 2,
        "head_dim": 16,
        "attention_chunk_size": 16,
        "floor_scale": 8,
        "attn_scale": 0.3,
        "rope_scaling": {**_LLAMA3, "high_freq_factor": 1.0},  # as Scout's, which leaves nothing to blend
    },
    "llama4-maverick": {
        "model_type": "llama4_text",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "intermediate_size_mlp": 80,
        "use_qk_norm": False,
        "head_dim": 16,
        "attention_chunk_size": 8,
        "no_rope_layers": [1, 0, 1, 0],
        "attn_temperature_tuning": False,
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        "num_local_experts": 6,
        "num_experts_per_tok": 3,
        "head_dim": 16,
        "sliding_window": 8,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        },
    },
    "phimoe": {
        "model_type": "phimoe",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "router_jitter_noise": 0.2,  # far more than in use, so that several experts come near
        "attention_bias": True,
        "lm_head_bias": True,
        "rope_scaling": {
            **_LONGROPE,
            # one set: transformers 5 keeps the short factors in long sequences, unlike the checkpoint's own code
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
            "long_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
            "short_mscale": 1.2,
            "long_mscale": 1.4,
            "original_max_position_embeddings": 64,
        },
    },
    "deepseek_v2-lite": {
        **_LATENT,
        "model_type": "deepseek_v2",
        "q_lora_rank": None,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "routed_scaling_factor": 1.3,
        "rope_scaling": _YARN_BY_MAGNITUDE,
    },
    "deepseek_v2": {
        **_LATENT,
        "model_type": "deepseek_v2",
        "q_lora_rank": 40,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_shared_experts": 1,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 4.0,
    },
    "deepseek_v3": {
        **_LATENT,
        "model_type": "deepseek_v3",
        "q_lora_rank": 40,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "n_shared_experts": 1,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 2.5,
        "rope_scaling": {**_YARN_BY_MAGNITUDE, "mscale": 1.0, "mscale_all_dim": 1.0},
        "attention_bias": True,
        "num_mtp_layers": 0,
    },
}


@dataclass(frozen=True)
class Tiny:
    """A checkpoint on disk and its oracle."""

    path: Path
    oracle: Any
    _answers: dict[tuple[tuple[int, ...], int], tuple[list[int], torch.Tensor]] = field(default_factory=dict)
    """By prompt and count: what the oracle said. Tests ask the same in many ways, and it takes longer than they do."""

    def greedy(self, prompt: list[int], count: int) -> tuple[list[int], torch.Tensor]:
        """The oracle's next `count` tokens and the logits each was chosen from, [count, vocabulary]."""
        key = (tuple(prompt), count)
        if key not in self._answers:
            self._answers[key] = self._generated(prompt, count)
        return self._answers[key]

    @torch.no_grad()
    def _generated(self, prompt: list[int], count: int) -> tuple[list[int], torch.Tensor]:
        result = self.oracle.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        return result.sequences[0, len(prompt) :].tolist(), torch.cat(result.logits)


def make_tiny(name: str, folder: Path) -> Tiny:
    """Write the case called `name` to `folder`."""
    given = dict(CASES[name])
    model_type = given.pop("model_type")
    shape = dict(SHAPE)
    if model_type == "gpt2":
        shape = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "vocab_size": VOCABULARY}
    return write_tiny(AutoConfig.for_model(model_type, **{**shape, **given}), folder, seed=len(name))


def write_tiny(config: Any, folder: Path, *, seed: int) -> Tiny:
    """A model of this config with random weights, and its checkpoint in `folder`."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    oracle = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in oracle.parameters():
            # larger than a fresh model's, so that tokens are far apart and greedy choices clear
            noise = torch.randn_like(parameter)
            parameter.copy_(noise * 0.12 if parameter.dim() > 1 else parameter + noise * 0.1)
        for name, buffer in oracle.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.3)
    oracle.tie_weights()
    oracle.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(json.loads(config.to_json_string(use_diff=False))))
    return Tiny(folder, oracle)
