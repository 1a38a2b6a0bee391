"""Facts and settings that several tests start from."""

from dataclasses import replace
from typing import Any

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, ModelFacts
from quire.models.loading.header import config_facts
from quire.spec.layer import LayerSpec

LLAMA_3_8B_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128_256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
TINY_CONFIG: dict[str, Any] = LLAMA_3_8B_CONFIG | {
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
}
DEEPSEEK_V3_CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "first_k_dense_replace": 3,
    "vocab_size": 129_280,
    "max_position_embeddings": 163_840,
    "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    },
}
BERT_CONFIG: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "torch_dtype": "float32",
}

LLAMA_3_8B = config_facts("Meta-Llama-3-8B", LLAMA_3_8B_CONFIG)
TINY = config_facts("tiny", TINY_CONFIG)
BERT = config_facts("bert", BERT_CONFIG)

H100 = DEVICES["h100"]
CPU = DEVICES["cpu"]


def asked(**settings: object) -> EngineConfig:
    return EngineConfig.from_flat(**{"model": "any", **settings})


def with_memory(device: DeviceFacts, size: int) -> DeviceFacts:
    return replace(device, memory_bytes=size)


def with_spec(model: ModelFacts, **changes: Any) -> ModelFacts:
    """The same model but for fields of its spec."""
    return replace(model, spec=replace(model.spec, **changes))


def with_windows(model: ModelFacts, windows: tuple[int | None, ...]) -> ModelFacts:
    """The same model with a sliding window, or none, in each layer; no windows at all leave it as it is."""
    if not windows:
        return model

    def windowed(layer: LayerSpec, window: int | None) -> LayerSpec:
        return replace(layer, attention=replace(layer.attention, window=window))

    return with_spec(model, layers=tuple(windowed(*one) for one in zip(model.spec.layers, windows, strict=True)))


def stored_as(model: ModelFacts, kind: str) -> ModelFacts:
    """The same model with every matrix packed in `kind` and every vector in float32, as GGUF files have them."""
    kinds = {tensor.name: kind if tensor.use == "matrix" else "float32" for tensor in model.spec.tensors()}
    return replace(model, dtype=kind, kinds=kinds)
