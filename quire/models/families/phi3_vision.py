"""Phi-3-vision and Phi-3.5-vision: CLIP's tower on crops of an image and on the whole, and Phi-3's language model."""

from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.models.families.llava import tower
from quire.models.families.vision_blocks import VisionFamily, matrix, table
from quire.models.loading.hf_fields import HFFields
from quire.spec.model import ModelSpec
from quire.spec.vision import CropsSpec, ProjectorSpec, VisionSpec

_START = "model.vision_embed_tokens."
_TOWER = f"{_START}img_processor.vision_model."
_CLIP = "openai/clip-vit-large-patch14-336"
_JOINED = 2
"""Patches a side of the square that becomes one vector."""
_LAYOUT = {
    "embedding_cls": "image",
    "hd_transform_order": "sub_glb",
    "projection_cls": "mlp",
    "use_hd_transform": True,
    "with_learnable_separator": True,
}
"""What published checkpoints say of how an image's vectors are joined and laid; their code has more ways."""
_MOVED = (
    (_TOWER, "vision_tower."),
    (f"{_START}wte.", "model.embed_tokens."),
)
"""The tower shares the embedding of words, and files may hold it under either name."""
_RENAMED = tuple((name, f"{name}.weight") for name in ("embeddings.class_embedding", "sub_GN", "glb_GN"))


def attach(text: ModelSpec, config: HFFields) -> ModelSpec:
    vision = _tower(config)
    joined = vision.patches.rows * _JOINED**2
    projector = ProjectorSpec(
        matrix(f"{_START}img_projection.0", text.hidden_size, joined),
        matrix(f"{_START}img_projection.2", text.hidden_size, text.hidden_size),
        "gelu",
        _JOINED,
    )
    crops = CropsSpec(
        row_end=table(f"{_START}sub_GN", 1, joined, axes=(1, 1, 1)),
        crops_end=table(f"{_START}glb_GN", 1, joined, axes=(1, 1)),
    )
    return replace(
        text,
        vision=replace(vision, projector=projector, crops=crops),
        moved=_MOVED,
        renamed=(*text.renamed, *_RENAMED),
        unused=(*text.unused, *_unused(len(vision.layers))),
    )


def _tower(config: HFFields) -> VisionSpec:
    """CLIP's, of which a config says no more than the name; what differs from it stands in `vision_config`."""
    given, layout, own = config.nested("img_processor"), config.nested("embd_layer"), config.nested("vision_config")
    for name, value in _LAYOUT.items():
        found = layout.values.get(name)
        if found != value:
            raise CheckpointError(f"{layout.source} has {name} {found!r}; quire has {value!r} alone.")
    name = given.text("model_name", _CLIP)
    if name != _CLIP and not own.values:
        raise CheckpointError(f"{given.source} has the tower {name!r}; quire has {_CLIP!r} alone.")
    kind = given.text("type_feature", "patch")
    if kind != "patch":
        raise CheckpointError(f"{given.source} has type_feature {kind!r}; quire reads the patches of a tower alone.")
    layer = given.values.get("layer_idx", -2)
    values = {"vision_config": {"model_type": "clip_vision_model", **own.values}, "vision_feature_layer": layer}
    vision = tower(HFFields(values, given.source))
    size = given.size_or_none("image_dim_out")
    if size not in (None, vision.patches.rows):
        raise CheckpointError(f"{given.source} has image_dim_out {size}; the tower makes {vision.patches.rows}.")
    return vision


def _unused(layers: int) -> tuple[str, ...]:
    start = _TOWER.replace(".", r"\.")
    return (
        rf"{start}encoder\.layers\.(?!({'|'.join(map(str, range(layers)))})\.)\d+\..*",
        rf"{start}post_layernorm\..*",
        rf"{start}embeddings\.position_ids",
        r"model\.vision_embed_tokens\.wte\.weight",
    )


FAMILY = VisionFamily(attach, text_type="phi3")
