"""Phi-3.5-MoE: classic norms, biases in attention and head, and experts that sparsemixer gives to tokens."""

from typing import Any

from quire.core.errors import CheckpointError
from quire.core.routing import Routing
from quire.models.families.blocks import Norms, attention, decoder, layer_norm
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import experts, gguf_experts
from quire.models.families.family import Family, GGUFModel
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec

_CHOSEN = 2
"""Experts that sparsemixer was made for."""


def describe(dims: Dimensions) -> ModelSpec:
    fields = dims.fields
    top_k = fields.size("num_experts_per_tok")
    if top_k != _CHOSEN:
        raise CheckpointError(f"{dims.source} gives every token {top_k} experts, but its routing chooses {_CHOSEN}.")
    jitter = fields.number("router_jitter_noise", 0.01)
    routing = Routing(top_k, "sparsemixer", renormalize=False, nearness=2 * jitter)
    return decoder(
        dims,
        lambda layer: LayerSpec(
            attention(dims, layer),
            experts(
                dims,
                layer,
                routing,
                size=fields.size("intermediate_size"),
                prefix="model.layers.{}.block_sparse_moe.",
                names=("w1", "w3", "w2"),
            ),
            **_norms(dims, layer),
        ),
        norm=layer_norm(dims, "model.norm", "output_norm"),
        head_bias=fields.flag("lm_head_bias", False),
    )


def _norms(dims: Dimensions, layer: int) -> Norms:
    return {
        "attention_norm": layer_norm(dims, "model.layers.{}.input_layernorm", "attention_norm", layer),
        "mlp_norm": layer_norm(dims, "model.layers.{}.post_attention_layernorm", "mlp_norm", layer),
    }


def _from_gguf(model: GGUFModel) -> dict[str, Any]:
    return gguf_experts(model) | {"lm_head_bias": "output.bias" in model.tensors}


FAMILY = Family(
    describe,
    defaults={
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "num_experts_per_tok": _CHOSEN,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
    },
    from_gguf=_from_gguf,
)
