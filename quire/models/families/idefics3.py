"""Idefics 3 and SmolVLM: SigLIP's tower, squares of patches joined and multiplied once, Llama's language model."""

from dataclasses import replace

from quire.models.families.vision_blocks import VisionFamily, clip_layer, matrix, patch_matrix, table, vision_norm
from quire.models.loading.hf_fields import HFFields
from quire.spec.model import ModelSpec
from quire.spec.vision import ProjectorSpec, VisionSpec

_TOWER = "model.vision_model."
_MOVED = (("model.text_model.", "model."),)
_DEFAULTS = {
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 32,
}


def attach(text: ModelSpec, config: HFFields) -> ModelSpec:
    given = config.nested("vision_config")
    fields = HFFields({**_DEFAULTS, **given.values}, given.source)
    size, patch = fields.size("hidden_size"), fields.size("patch_size")
    merge = config.size_or_none("scale_factor") or 2
    start, side = f"{_TOWER}embeddings.", fields.size("image_size") // patch
    layers = range(fields.size("num_hidden_layers"))
    vision = VisionSpec(
        patch_size=patch,
        patches=patch_matrix(f"{start}patch_embedding", size, patch, bias=True),
        positions=table(f"{start}position_embedding", side**2, size),
        spread="nearest",
        layers=tuple(clip_layer(fields, _TOWER, layer, usual="gelu_pytorch_tanh") for layer in layers),
        norm_after=vision_norm(f"{_TOWER}post_layernorm", size, fields.number("layer_norm_eps", 1e-6)),
        projector=ProjectorSpec(
            matrix("model.connector.modality_projection.proj", text.hidden_size, size * merge**2, bias=False),
            None,
            "gelu",
            merge,
        ),
    )
    return replace(text, vision=vision, moved=_MOVED)


FAMILY = VisionFamily(attach)
