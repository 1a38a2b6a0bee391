"""Pixtral's tower: pictures of any size, rotary positions of rows and columns, layers like a language model's."""

from quire.models.families.vision_blocks import activation, attention, matrix, patch_matrix, vision_norm
from quire.models.loading.hf_fields import HFFields
from quire.spec.layer import LayerSpec
from quire.spec.layout import AS_STORED, PairedRows
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.mlp import MlpSpec
from quire.spec.vision import AxialRopeSpec, ProjectorSpec, VisionSpec

_EPS = 1e-5
_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 16,
}


def pixtral_tower(given: HFFields, layers: int, prefix: str) -> VisionSpec:
    """The projector is the caller's to say."""
    fields = HFFields({**_DEFAULTS, **given.values}, given.source)
    size, patch, heads = fields.size("hidden_size"), fields.size("patch_size"), fields.size("num_attention_heads")
    theta = fields.nested("rope_parameters").number("rope_theta", fields.number("rope_theta", 10_000.0))
    patches = patch_matrix(f"{prefix}patch_conv", size, patch, bias=False)
    return VisionSpec(
        patch_size=patch,
        patches=patches,
        layers=tuple(_layer(fields, f"{prefix}transformer.layers.{layer}.", size, heads) for layer in range(layers)),
        rope=AxialRopeSpec(size // heads, theta, "interleaved"),
        norm_before=vision_norm(f"{prefix}ln_pre", size, _EPS, "rms"),
        projector=ProjectorSpec(patches, None, "gelu"),
    )


def _layer(fields: HFFields, start: str, size: int, heads: int) -> LayerSpec:
    inner = fields.size("intermediate_size")
    paired = PairedRows(heads, size // heads, size // heads)
    parts = (
        Part(f"{start}attention.{name}_proj", "vision", size, gguf_layout=AS_STORED if name == "v" else paired)
        for name in "qkv"
    )
    qkv = MatrixSpec(tuple(parts), size, "none")
    up = tuple(Part(f"{start}feed_forward.{name}_proj", "vision", inner) for name in ("gate", "up"))
    down = matrix(f"{start}feed_forward.down_proj", size, inner, bias=False)
    return LayerSpec(
        attention(qkv, f"{start}attention.o_proj", size, heads, bias=False, rope=0),
        MlpSpec(MatrixSpec(up, size, "none"), down, activation(fields, "hidden_act", "gelu"), gated=True),
        vision_norm(f"{start}attention_norm", size, _EPS, "rms"),
        vision_norm(f"{start}ffn_norm", size, _EPS, "rms"),
    )
