"""Gemma 3 with images: SigLIP's tower, the means of squares of patches, and tokens of an image that see all of it."""

import math
from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.families.llava import MOVED
from quire.models.families.vision_blocks import VisionFamily, clip_layer, patch_matrix, table, vision_norm
from quire.models.loading.hf_fields import HFFields
from quire.spec.layout import MINUS_ONE, TRANSPOSED
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec
from quire.spec.vision import ProjectorSpec, VisionSpec

_TOWER = "vision_tower."
_PROJECTION = "multi_modal_projector.mm_input_projection_weight"
_DEFAULTS = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 896,
    "patch_size": 14,
}


def attach(text: ModelSpec, config: HFFields) -> ModelSpec:
    given = config.nested("vision_config")
    fields = HFFields({**_DEFAULTS, **given.values}, given.source)
    size, patch, tokens = fields.size("hidden_size"), fields.size("patch_size"), config.size_or_none(_TOKENS) or 256
    side, eps = fields.size("image_size") // patch, fields.number("layer_norm_eps", 1e-6)
    merge = side // math.isqrt(tokens)
    if merge * math.isqrt(tokens) != side or math.isqrt(tokens) ** 2 != tokens:
        raise CheckpointError(f"{config.source} makes {tokens} tokens of {side} × {side} patches ({_TOKENS}).")
    norm = vision_norm("multi_modal_projector.mm_soft_emb_norm", size, eps, "rms")
    start = f"{_TOWER}embeddings."
    layers = range(fields.size("num_hidden_layers"))
    vision = VisionSpec(
        patch_size=patch,
        patches=patch_matrix(f"{start}patch_embedding", size, patch, bias=True),
        positions=table(f"{start}position_embedding", side**2, size),
        layers=tuple(clip_layer(fields, _TOWER, layer, usual="gelu_pytorch_tanh") for layer in layers),
        norm_after=vision_norm(f"{_TOWER}post_layernorm", size, eps),
        projector=ProjectorSpec(
            MatrixSpec((Part(_PROJECTION, "vision", text.hidden_size, TRANSPOSED, TRANSPOSED),), size, "none"),
            None,
            "gelu",
            merge,
            norm=replace(norm, offset=1.0, gguf_layout=MINUS_ONE),
            joined_by="mean",
        ),
        seen_whole=tokens,
    )
    return replace(
        text,
        vision=vision,
        moved=MOVED,
        renamed=(*text.renamed, (_PROJECTION, f"{_PROJECTION}.weight")),
        unused=(*text.unused, r"(model\.)?vision_tower\.(vision_model\.)?head\..*"),
    )


_TOKENS = "mm_tokens_per_image"
FAMILY = VisionFamily(attach)
