"""The GPU workloads, the same for every engine: shapes of public models with random weights, and seeded requests.

Only the standard library here: the peers' environments need not have ours.
"""

import json
import random
from pathlib import Path

SHAPES: dict[str, dict[str, object]] = {
    "llama-8b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 28,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 151643,
        "eos_token_id": 151645,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 48,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 151643,
        "eos_token_id": 151645,
    },
    "deepseek-v2-lite": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "num_experts_per_tok": 6,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": False,
        "scoring_func": "softmax",
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 102400,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 100000,
        "eos_token_id": 100001,
    },
}
WORKLOADS = ("single", "mixed256", "mixed1024", "prefix", "prefill")
Asked = tuple[list[int], int]
"""A prompt's token ids, and how many tokens to answer with."""


def write_shape(name: str, folder: Path) -> Path:
    """A model's folder without weights: engines make random ones (`load_format="dummy"`)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[name]), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False}), encoding="utf-8")
    return folder


def requests(workload: str, seed: int) -> list[Asked]:
    """Prompts and lengths of answers; equal seeds are equal everywhere."""
    draw = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [draw.randint(1000, 50000) for _ in range(count)]

    if workload == "single":
        return [(ids(128), 256)]
    if workload in ("mixed256", "mixed1024"):  # lengths as in nano-vllm's public benchmark
        number = int(workload.removeprefix("mixed"))
        return [(ids(draw.randint(100, 1024)), draw.randint(100, 1024)) for _ in range(number)]
    if workload == "prefix":  # one system prompt, 256 users
        head = ids(1024)
        return [(head + ids(64), 128) for _ in range(256)]
    if workload == "prefill":
        return [(ids(2048), 1) for _ in range(64)]
    raise ValueError(f"there is no workload {workload!r}; there are {', '.join(WORKLOADS)}")
