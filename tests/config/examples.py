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
