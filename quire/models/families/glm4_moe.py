"""GLM-4.5 and 4.6: sigmoid scores with a correction, groups of experts, shared experts; the first layers have none."""

from quire.core.routing import Routing
from quire.models.families.blocks import attention, decoder, gated_mlp, head_norms, mtp, pre_norms
from quire.models.families.dimensions import Dimensions
from quire.models.families.experts import experts, shared_experts
from quire.models.families.family import Family
from quire.spec.experts import ExpertsSpec
from quire.spec.layer import LayerSpec
from quire.spec.model import ModelSpec
from quire.spec.rope import read_rope


def describe(dims: Dimensions) -> ModelSpec:
    fields = dims.fields
    first, normed = fields.size_or_none("first_k_dense_replace", least=0) or 0, fields.flag("use_qk_norm", False)
    bias = fields.flag("attention_bias", False)

    def layer(index: int) -> LayerSpec:
        norms = head_norms(dims, index) if normed else None
        return LayerSpec(
            attention(dims, index, qkv_bias=bias, out_bias=False, head_norms=norms),
            _experts(dims, index) if index >= first else gated_mlp(dims, index),
            **pre_norms(dims, index),
        )

    return decoder(dims, layer, ropes=(read_rope(fields.values, dims.head_dim, partial=0.5),), **mtp(dims, layer))


def _experts(dims: Dimensions, layer: int) -> ExpertsSpec:
    fields = dims.fields
    size = fields.size("moe_intermediate_size")
    routing = Routing(
        fields.size("num_experts_per_tok"),
        "sigmoid",
        renormalize=fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 1.0),
        groups=fields.size("n_group"),
        top_groups=fields.size("topk_group"),
    )
    shared = shared_experts(dims, layer, "shared_experts", size * fields.size("n_shared_experts"))
    return experts(dims, layer, routing, size=size, correction="gate.e_score_correction_bias", shared=shared)


FAMILY = Family(
    describe,
    defaults={
        "n_routed_experts": 128,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
    },
)
