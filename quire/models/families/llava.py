"""LLaVA 1.5: CLIP's, SigLIP's or Pixtral's tower, and two matrices to a language model of any family."""

from dataclasses import replace
from typing import Any

from quire.core.errors import CheckpointError
from quire.models.families.pixtral import pixtral_tower
from quire.models.families.vision_blocks import (
    VisionFamily,
    activation,
    clip_layer,
    matrix,
    patch_matrix,
    table,
    vision_norm,
)
from quire.models.loading.hf_fields import HFFields
from quire.spec.model import ModelSpec
from quire.spec.vision import ProjectorSpec, VisionSpec

_TOWER = "vision_tower."
MOVED = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
    ("model.vision_tower.vision_model.", _TOWER),
    ("model.vision_tower.", _TOWER),
    ("vision_tower.vision_model.", _TOWER),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("model.image_newline", "image_newline"),
)
"""Each version of transformers has nested the parts otherwise."""
_CLASS_TOKEN = "embeddings.class_embedding"
TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
}
_CLIP_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}


def attach(text: ModelSpec, config: HFFields) -> ModelSpec:
    vision = tower(config)
    up = matrix("multi_modal_projector.linear_1", text.hidden_size, vision.patches.rows, bias=_has_bias(config))
    down = matrix("multi_modal_projector.linear_2", text.hidden_size, text.hidden_size, bias=_has_bias(config))
    projector = ProjectorSpec(up, down, activation(config, "projector_hidden_act", "gelu"))
    return replace(
        text,
        vision=replace(vision, projector=projector),
        moved=MOVED,
        renamed=(*text.renamed, (_CLASS_TOKEN, f"{_CLASS_TOKEN}.weight")),
        unused=(*text.unused, *_unused(len(vision.layers))),
    )


def tower(config: HFFields) -> VisionSpec:
    """As far as its features are read; the projector is the caller's to say."""
    fields = _tower_fields(config)
    kind = fields.text("model_type", "")
    if kind == "pixtral":
        return pixtral_tower(fields, _layers(config, fields), _TOWER)
    is_clip = kind == "clip_vision_model"
    if kind not in ("clip_vision_model", "siglip_vision_model"):
        raise CheckpointError(
            f"{fields.source} is of type {kind!r}; of LLaVA's towers quire has clip_vision_model, siglip_vision_model "
            "and pixtral."
        )
    size, patch = fields.size("hidden_size"), fields.size("patch_size")
    eps = fields.number("layer_norm_eps", 1e-5 if is_clip else 1e-6)
    places = (fields.size("image_size") // patch) ** 2 + is_clip
    layers = _layers(config, fields)
    usual = "quick_gelu" if is_clip else "gelu_pytorch_tanh"
    start = f"{_TOWER}embeddings."
    patches = patch_matrix(f"{start}patch_embedding", size, patch, bias=not is_clip)
    return VisionSpec(
        patch_size=patch,
        patches=patches,
        class_token=table(f"{start}class_embedding", 1, size) if is_clip else None,
        positions=matrix(f"{start}position_embedding", places, size, bias=False),
        norm_before=vision_norm(f"{_TOWER}pre_layrnorm", size, eps) if is_clip else None,
        layers=tuple(clip_layer(fields, _TOWER, layer, usual=usual) for layer in range(layers)),
        projector=ProjectorSpec(patches, None, "gelu"),
    )


def _tower_fields(config: HFFields) -> HFFields:
    given = config.nested("vision_config")
    defaults = _CLIP_DEFAULTS if given.text("model_type", "") == "clip_vision_model" else {}
    return HFFields({**defaults, **given.values}, given.source)


def _layers(config: HFFields, fields: HFFields) -> int:
    """How many layers run: what LLaVA reads is what a layer gives, before any last norm."""
    total, feature = fields.size("num_hidden_layers"), config.values.get("vision_feature_layer", -2)
    strategy = config.text("vision_feature_select_strategy", "default")
    has_class = fields.text("model_type", "") == "clip_vision_model"
    if not isinstance(feature, int) or not -total <= feature + (feature < 0) <= total:
        raise CheckpointError(
            f"{config.source} gives vision_feature_layer {feature!r}; quire reads one layer's features."
        )
    if strategy != ("default" if has_class else "full"):
        raise CheckpointError(
            f"{config.source} selects the {strategy!r} features of a tower {'with' if has_class else 'without'} a "
            f"class token; quire reads its patches alone."
        )
    return total + 1 + feature if feature < 0 else feature


def _has_bias(config: HFFields) -> bool:
    return config.flag("multimodal_projector_bias", True)


def _unused(layers: int) -> tuple[str, ...]:
    start = r"(model\.)?vision_tower\.(vision_model\.)?"
    return (
        rf"{start}encoder\.layers\.(?!({'|'.join(map(str, range(layers)))})\.)\d+\..*",
        rf"{start}(post_layernorm|head)\..*",
        rf"{start}embeddings\.position_ids",
    )


FAMILY = VisionFamily(attach, text_defaults=TEXT_DEFAULTS)
