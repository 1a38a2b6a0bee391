"""Llama 2 and 3, Mistral, SmolLM2, Falcon 3, and what is built like them."""

from typing import Any

from quire.models.families.blocks import attention, decoder, gated_mlp, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import gguf_experts
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec


def describe(dims: Dimensions) -> ModelSpec:
    """RMSNorm before attention and MLP, rotary positions, grouped KV heads; Mistral's layers may have windows."""
    mlp_bias = dims.fields.flag("mlp_bias", False)
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer, gguf_paired=True),
            gated_mlp(dims, layer, bias=mlp_bias),
            **pre_norms(dims, layer),
        ),
    )


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    if model.read.size_or_none("expert_count", least=0):
        return {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **gguf_experts(model)}
    return {}


FAMILY = Family(describe, from_gguf=_from_gguf)
MISTRAL = Family(describe, defaults={"num_key_value_heads": 8})
