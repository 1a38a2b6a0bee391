"""InternVL 2.5 and 3 as transformers has them: InternViT, squares of four patches to an embedding, any text model."""

from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.families.llava import MOVED
from quire.models.families.vision_blocks import (
    VisionFamily,
    activation,
    attention,
    matrix,
    patch_matrix,
    plain_mlp,
    table,
    vision_norm,
)
from quire.models.loading.hf_fields import HFFields
from quire.spec.layer import LayerSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec
from quire.spec.norm import NormKind, NormSpec
from quire.spec.vision import ProjectorSpec, VisionSpec

_TOWER = "vision_tower."
_BARE = ("embeddings.cls_token", "embeddings.position_embeddings", ".lambda_1", ".lambda_2")
"""Tensors that are called by what they are alone."""
_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": [448, 448],
    "patch_size": [14, 14],
}
_PROJECTOR_EPS = 1e-5


def attach(text: ModelSpec, config: HFFields) -> ModelSpec:
    given = config.nested("vision_config")
    fields = HFFields({**_DEFAULTS, **given.values}, given.source)
    _check(config, fields)
    size, patch, side = fields.size("hidden_size"), _side(fields, "patch_size"), _side(fields, "image_size")
    eps, kind = fields.number("layer_norm_eps", 1e-6), _norm_kind(fields)
    merge = round(1 / config.number("downsample_ratio", 0.5))
    joined = size * merge**2
    projector = ProjectorSpec(
        matrix("multi_modal_projector.linear_1", text.hidden_size, joined),
        matrix("multi_modal_projector.linear_2", text.hidden_size, text.hidden_size),
        activation(config, "projector_hidden_act", "gelu"),
        merge,
        norm=vision_norm("multi_modal_projector.layer_norm", joined, _PROJECTOR_EPS),
    )
    has_norm = not fields.flag("use_mean_pooling", True)
    start = f"{_TOWER}embeddings."
    vision = VisionSpec(
        patch_size=patch,
        patches=patch_matrix(f"{start}patch_embeddings.projection", size, patch, bias=True),
        class_token=table(f"{start}cls_token", 1, size, (1, 1)),
        positions=table(f"{start}position_embeddings", (side // patch) ** 2 + 1, size, (1,)),
        layers=tuple(_layer(fields, layer, kind, eps) for layer in range(fields.size("num_hidden_layers"))),
        norm_after=vision_norm(f"{_TOWER}layernorm", size, eps) if has_norm else None,
        projector=projector,
    )
    renamed = tuple((name, f"{name}.weight") for name in _BARE)
    return replace(text, vision=vision, moved=MOVED, renamed=(*text.renamed, *renamed))


def _layer(fields: HFFields, layer: int, kind: NormKind, eps: float) -> LayerSpec:
    size, start = fields.size("hidden_size"), f"{_TOWER}encoder.layer.{layer}."
    parts = tuple(Part(f"{start}attention.{name}_proj", "vision", size) for name in "qkv")
    qkv = MatrixSpec(parts, size, "none", fields.flag("attention_bias", False))
    inner = fields.size("intermediate_size")
    return LayerSpec(
        attention(qkv, f"{start}attention.projection_layer", size, fields.size("num_attention_heads")),
        plain_mlp((f"{start}mlp.fc1", f"{start}mlp.fc2"), size, inner, activation(fields, "hidden_act", "gelu")),
        vision_norm(f"{start}layernorm_before", size, eps, kind),
        vision_norm(f"{start}layernorm_after", size, eps, kind),
        NormSpec(f"{start}lambda_1", "vision_scale", (size,), 0.0, "scale"),
        NormSpec(f"{start}lambda_2", "vision_scale", (size,), 0.0, "scale"),
    )


def _norm_kind(fields: HFFields) -> NormKind:
    return "rms" if fields.text("norm_type", "layer_norm") == "rms_norm" else "layer"


def _side(fields: HFFields, name: str) -> int:
    value = fields.values[name]
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) != 2 or sides[0] != sides[1] or not isinstance(sides[0], int) or sides[0] < 1:
        raise CheckpointError(f"{fields.source} gives {name} as {str(value)[:40]}; quire reads squares.")
    return int(sides[0])


def _check(config: HFFields, fields: HFFields) -> None:
    """What quire does not have is refused."""
    if fields.flag("use_qk_norm", False):
        raise CheckpointError(f"{fields.source} norms queries and keys (use_qk_norm), which quire has no tower for.")
    layer = config.values.get("vision_feature_layer", -1)
    strategy = config.text("vision_feature_select_strategy", "default")
    if layer != -1 or strategy != "default":
        raise CheckpointError(
            f"{config.source} reads {strategy!r} features of layer {layer!r}; of InternVL quire reads the patches of "
            "the last layer."
        )


FAMILY = VisionFamily(attach)
