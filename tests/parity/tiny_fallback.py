"""Tiny random models of families that quire has no code for, as `tests.parity.tiny` makes those it has."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig

from tests.parity.tiny import SHAPE, VOCABULARY, Tiny, write_tiny

_FIELDS: dict[str, Any] = {
    **SHAPE,
    "head_dim": 16,
    "sliding_window": 8,
    "query_pre_attn_scalar": 16,
    "kv_channels": 16,
    "rotary_dim": 8,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 256,
    "d_model": 64,
    "n_layers": 3,
    "n_heads": 4,
    "max_seq_len": 256,
    "d_inner": 112,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
}
"""What a family's config takes of these makes it small; the names are all that families use for the same things."""
_CHANGES: dict[str, dict[str, Any]] = {
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]], "window_size": 8},
    "roberta": {"is_decoder": True},
    "lfm2_moe": {"layer_types": ["full_attention"] * 4},
}
_WITHOUT_HEAD_DIM = ("dbrx", "falcon")

FEW = ("mixtral", "olmo3", "glm4", "phi", "dbrx", "granitemoe")
"""Experts; windows; norms around everything; a parallel MLP; another spelling of sizes; scaled logits."""
MANY = (
    *("afmoe", "apertus", "arcee", "aria_text", "beam", "biogpt", "bitnet", "cohere2_moe", "ctrl", "cwm"),
    *(
        "gpt_bigcode",
        "dots1",
        "ernie4_5",
        "ernie4_5_moe",
        "exaone4",
        "exaone_moe",
        "flex_olmo",
        "gemma",
        "glm",
        "glm4_moe",
    ),
    *("granitemoeshared", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe"),
    *("hy_v3", "hyperclovax", "jais2", "kolibri1", "laguna", "mellum", "minimax_m2", "ministral", "ministral3"),
    *("modernbert-decoder", "nanochat", "olmo", "olmoe", "persimmon", "phimoe", "qwen2_moe"),
    *("qwen3_moe", "seed_oss", "solar_open", "starcoder2", "vaultgemma"),
)
NATIVE = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt2", "olmo2", "granite", "smollm3"),
    *("gpt_neox", "cohere", "cohere2"),
)
"""Families of quire's own, through the fallback, which none of them takes unless it is asked for."""
REFUSED = {
    "bamba": "do not attend through transformers' AttentionInterface",
    "codegen": "do not attend through transformers' AttentionInterface",
    "diffllama": "attends more than once",
    "doge": "changes masks",
    "falcon": "do not attend through transformers' AttentionInterface",
    "falcon_h1": "prompts in pieces are not transformers' own",
    "gpt_neo": "do not attend through transformers' AttentionInterface",
    "gpt_oss": "give attention s_aux",
    "gptj": "do not attend through transformers' AttentionInterface",
    "jetmoe": "keys of shape",
    "mpt": "do not attend through transformers' AttentionInterface",
    "nemotron": "do not hand keyword arguments down",
    "opt": "do not hand keyword arguments down",
    "roberta": "not transformers' own",
    "stablelm": "do not hand keyword arguments down",
}
"""What each is refused for, where the fallback is asked for; falcon, opt and stablelm are quire's own otherwise."""


def make_tiny_fallback(model_type: str, folder: Path, **changes: Any) -> Tiny:
    """Write a model of this family to `folder`."""
    cls = type(AutoConfig.for_model(model_type))
    usual, renamed = cls(), getattr(cls, "attribute_map", {})
    given = {name: value for name, value in _FIELDS.items() if hasattr(usual, name) and name not in renamed}
    if model_type in _WITHOUT_HEAD_DIM:
        given.pop("head_dim", None)
    given |= _CHANGES.get(model_type, {}) | changes
    assert given["vocab_size"] == VOCABULARY
    return write_tiny(AutoConfig.for_model(model_type, **given), folder, seed=len(model_type))
