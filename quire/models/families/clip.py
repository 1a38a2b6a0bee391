"""CLIP and SigLIP: a tower of texts and one of images, whose vectors lie in one space."""

from dataclasses import replace
from typing import Any

from quire.models.families.blocks import layer_norm, model, plain_mlp, self_attention, separate_qkv, table
from quire.models.families.dimensions import Dimensions
from quire.models.families.family import Family
from quire.models.families.vision_blocks import VisionFamily, clip_layer, matrix, patch_matrix, vision_norm
from quire.models.families.vision_blocks import table as vision_table
from quire.models.loading.hf_fields import HFFields
from quire.spec.joint import AttentionPoolSpec, JointSpec
from quire.spec.layer import LayerSpec
from quire.spec.model import EmbeddingSpec, ModelSpec
from quire.spec.vision import ProjectorSpec, VisionSpec

_TEXT, _VISION = "text_model.", "vision_model."
_HEAD = f"{_VISION}head."
_RENAMED = (
    ("embeddings.class_embedding", "embeddings.class_embedding.weight"),
    ("head.probe", "head.probe.weight"),
    ("head.attention.in_proj_weight", "head.attention.in_proj.weight"),
    ("head.attention.in_proj_bias", "head.attention.in_proj.bias"),
)
_UNUSED = (r"logit_(scale|bias)", r".*embeddings\.position_ids")
_CLIP_TOWER = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
    "layer_norm_eps": 1e-5,
    "hidden_act": "quick_gelu",
}
_SIGLIP_TOWER = {**_CLIP_TOWER, "patch_size": 16, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"}
_PADDING = 1
"""SigLIP's own, where a config leaves it out."""


def _describe(dims: Dimensions, *, causal: bool) -> ModelSpec:
    start = f"{_TEXT}embeddings."
    return model(
        dims,
        lambda layer: _layer(dims, layer, causal=causal),
        embedding=EmbeddingSpec(
            table(f"{start}token_embedding", "words", dims.vocab_size, dims.hidden_size),
            table(f"{start}position_embedding", "positions", dims.max_position, dims.hidden_size),
        ),
        norm=layer_norm(dims, f"{_TEXT}final_layer_norm", "output_norm"),
        prefix=_TEXT,
        renamed=_RENAMED,
        unused=_UNUSED,
    )


def _layer(dims: Dimensions, layer: int, *, causal: bool) -> LayerSpec:
    start = f"{_TEXT}encoder.layers.{layer}."
    names = (f"{start}self_attn.q_proj", f"{start}self_attn.k_proj", f"{start}self_attn.v_proj")
    out = f"{start}self_attn.out_proj"
    return LayerSpec(
        self_attention(
            dims, layer, separate_qkv(dims, layer, "", names, bias=True), out, bias=True, rope=None, causal=causal
        ),
        plain_mlp(dims, layer, (f"{start}mlp.fc1", f"{start}mlp.fc2"), dims.fields.size("intermediate_size")),
        layer_norm(dims, f"{start}layer_norm1", "attention_norm", layer),
        layer_norm(dims, f"{start}layer_norm2", "mlp_norm", layer),
    )


def _attach_clip(text: ModelSpec, config: HFFields) -> ModelSpec:
    """A text's last token, an image's class token, and a matrix for each."""
    fields, size = _tower_fields(config, _CLIP_TOWER), config.size_or_none("projection_dim") or 512
    width, eps = fields.size("hidden_size"), fields.number("layer_norm_eps", 1e-5)
    start, patch = f"{_VISION}embeddings.", fields.size("patch_size")
    places = (fields.size("image_size") // patch) ** 2 + 1
    layers = range(fields.size("num_hidden_layers"))
    tower = VisionSpec(
        patch_size=patch,
        patches=patch_matrix(f"{start}patch_embedding", width, patch, bias=False),
        class_token=vision_table(f"{start}class_embedding", 1, width),
        positions=matrix(f"{start}position_embedding", places, width, bias=False),
        norm_before=vision_norm(f"{_VISION}pre_layrnorm", width, eps),
        layers=tuple(clip_layer(fields, _VISION, layer, usual="quick_gelu") for layer in layers),
        norm_after=vision_norm(f"{_VISION}post_layernorm", width, eps),
        projector=ProjectorSpec(matrix("visual_projection", size, width, bias=False), None, "gelu"),
    )
    return replace(text, joint=JointSpec(matrix("text_projection", size, text.hidden_size, bias=False), tower))


def _attach_siglip(text: ModelSpec, config: HFFields) -> ModelSpec:
    """A text's last token, which is filled up to the longest, and a query that looks at all patches of an image."""
    fields, given = _tower_fields(config, _SIGLIP_TOWER), config.nested("text_config")
    width, eps = fields.size("hidden_size"), fields.number("layer_norm_eps", 1e-6)
    start, patch = f"{_VISION}embeddings.", fields.size("patch_size")
    layers, inner = range(fields.size("num_hidden_layers")), fields.size("intermediate_size")
    first = clip_layer(fields, _VISION, 0, usual="gelu_pytorch_tanh")
    tower = VisionSpec(
        patch_size=patch,
        patches=patch_matrix(f"{start}patch_embedding", width, patch, bias=True),
        positions=matrix(f"{start}position_embedding", (fields.size("image_size") // patch) ** 2, width, bias=False),
        layers=tuple(clip_layer(fields, _VISION, layer, usual="gelu_pytorch_tanh") for layer in layers),
        norm_after=vision_norm(f"{_VISION}post_layernorm", width, eps),
        projector=ProjectorSpec(
            matrix(f"{_HEAD}mlp.fc1", inner, width),
            matrix(f"{_HEAD}mlp.fc2", width, inner),
            first.mlp.activation,
        ),
    )
    pool = AttentionPoolSpec(
        probe=vision_table(f"{_HEAD}probe", 1, width, axes=(1, 1)),
        qkv=matrix(f"{_HEAD}attention.in_proj", 3 * width, width),
        out=matrix(f"{_HEAD}attention.out_proj", width, width),
        norm=vision_norm(f"{_HEAD}layernorm", width, eps),
        num_heads=fields.size("num_attention_heads"),
    )
    projected = given.size_or_none("projection_size") or text.hidden_size
    padding = given.values.get("pad_token_id")
    filled = padding if isinstance(padding, int) else _PADDING
    return replace(text, joint=JointSpec(matrix(f"{_TEXT}head", projected, text.hidden_size), tower, pool, filled))


def _tower_fields(config: HFFields, usual: dict[str, Any]) -> HFFields:
    given = config.nested("vision_config")
    values = {name: value for name, value in given.values.items() if value is not None}
    return HFFields({**usual, **values}, given.source)


_TEXT_DEFAULTS: dict[str, Any] = {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "layer_norm_eps": 1e-5,
    "hidden_act": "quick_gelu",
}
_SIGLIP_TEXT = {
    **_TEXT_DEFAULTS,
    "vocab_size": 32000,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "max_position_embeddings": 64,
    "layer_norm_eps": 1e-6,
    "hidden_act": "gelu_pytorch_tanh",
}
CLIP_TEXT = Family(lambda dims: _describe(dims, causal=True), _TEXT_DEFAULTS)
SIGLIP_TEXT = Family(lambda dims: _describe(dims, causal=False), _SIGLIP_TEXT)
CLIP = VisionFamily(_attach_clip, "clip_text_model")
SIGLIP = VisionFamily(_attach_siglip, "siglip_text_model")
