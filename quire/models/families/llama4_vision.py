"""Llama 4 with images: a tower with rotary positions beside learned ones, squares of four patches to an embedding, and
three matrices to the language model."""

from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.families.vision_blocks import VisionFamily, attention, matrix, plain_mlp, table, vision_norm
from quire.models.loading.hf_fields import HFFields
from quire.spec.layer import LayerSpec
from quire.spec.layout import PairedRows
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec
from quire.spec.vision import AxialRopeSpec, ProjectorSpec, VisionSpec

_EPS = 1e-5
_THETA = 10_000.0
_TOWER = "vision_model."
_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "pixel_shuffle_ratio": 0.5,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 7680,
}
_VECTORS = ("class_embedding", "positional_embedding_vlm")


def attach(text: ModelSpec, config: HFFields) -> ModelSpec:
    given = config.nested("vision_config")
    fields = HFFields({**_DEFAULTS, **given.values}, given.source)
    size, patch, heads = fields.size("hidden_size"), fields.size("patch_size"), fields.size("num_attention_heads")
    side = fields.size("image_size") // patch
    theta = fields.nested("rope_parameters").number("rope_theta", fields.number("rope_theta", _THETA))
    vision = VisionSpec(
        patch_size=patch,
        patches=matrix(f"{_TOWER}patch_embedding.linear", size, 3 * patch**2, bias=False),
        class_token=table(f"{_TOWER}class_embedding", 1, size),
        positions=table(f"{_TOWER}positional_embedding_vlm", side**2 + 1, size),
        class_is_last=True,
        rope=AxialRopeSpec(size // heads, theta, "columns first", first=1),
        norm_before=vision_norm(f"{_TOWER}layernorm_pre", size, _EPS),
        layers=tuple(_layer(fields, index) for index in range(fields.size("num_hidden_layers"))),
        norm_after=vision_norm(f"{_TOWER}layernorm_post", size, _EPS),
        projector=_projector(fields, text.hidden_size),
    )
    renamed = tuple((f"{_TOWER}{name}", f"{_TOWER}{name}.weight") for name in _VECTORS)
    return replace(text, vision=vision, left_out=(), renamed=(*text.renamed, *renamed))


def _layer(fields: HFFields, index: int) -> LayerSpec:
    """Positions turn neighbours of a head together."""
    size, heads, start = (
        fields.size("hidden_size"),
        fields.size("num_attention_heads"),
        f"{_TOWER}model.layers.{index}.",
    )
    pairs = PairedRows(heads, size // heads, size // heads)
    turned = (Part(f"{start}self_attn.{name}_proj", "vision", size, pairs) for name in "qk")
    qkv = MatrixSpec((*turned, Part(f"{start}self_attn.v_proj", "vision", size)), size, "none", True)
    inner = fields.size("intermediate_size")
    return LayerSpec(
        attention(qkv, f"{start}self_attn.o_proj", size, heads, rope=0),
        plain_mlp((f"{start}mlp.fc1", f"{start}mlp.fc2"), size, inner, "gelu"),
        vision_norm(f"{start}input_layernorm", size, _EPS),
        vision_norm(f"{start}post_attention_layernorm", size, _EPS),
    )


def _projector(fields: HFFields, hidden_size: int) -> ProjectorSpec:
    merge = round(1 / fields.number("pixel_shuffle_ratio", 0.5))
    joined, middle = fields.size("hidden_size") * merge**2, fields.size("projector_output_dim")
    sizes = (fields.size("intermediate_size"), fields.size("projector_input_dim"), fields.size("vision_output_dim"))
    if sizes != (joined, middle, middle):
        raise CheckpointError(
            f"{fields.source} gives intermediate_size, projector_input_dim and vision_output_dim as {sizes}; the "
            f"matrices behind its tower fit together where they are {(joined, middle, middle)}."
        )
    start = f"{_TOWER}vision_adapter.mlp."
    return ProjectorSpec(
        matrix(f"{start}fc1", middle, joined, bias=False),
        matrix(f"{start}fc2", middle, middle, bias=False),
        "gelu",
        merge,
        last=matrix("multi_modal_projector.linear_1", hidden_size, middle, bias=False),
    )


FAMILY = VisionFamily(attach)
