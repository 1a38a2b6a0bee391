"""Types of projectors of mmproj files: as which model's config.json and preprocessor_config.json each is read.

One row a type. What a file does not say is what the published models of its kind have, as in llama.cpp.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from quire.core.errors import CheckpointError
from quire.core.nearest import did_you_mean
from quire.models.families.qwen_vl import QKV_APART
from quire.models.loading.mmproj.tower import MmprojTower

_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALF = (0.5, 0.5, 0.5)
_NEWLINES = ("v.image_newline", "model.image_newline")
_IMAGE = "image_token_id"


@dataclass(frozen=True, slots=True)
class Told:
    """What a file comes to."""

    config: dict[str, Any]
    """Of the whole model, without its language part."""
    image: dict[str, Any]
    """Of the image processor."""
    video: dict[str, Any] = field(default_factory=dict)
    """Of the video processor, where there is one."""
    names: dict[str, str] = field(default_factory=dict)
    """Of tensors whose names follow from what the file says: GGUF's stems by the spec's."""


@dataclass(frozen=True, slots=True)
class Projector:
    """How one type is read."""

    told: Callable[[MmprojTower], Told]
    goes_with: tuple[str, ...]
    """Architectures of GGUF language models; empty: all."""
    width: tuple[str, int]
    """The tensor, and the axis of it, that is as wide as the language model."""
    names: Mapping[str, str]
    """Of the projector's tensors: GGUF's stems by the spec's."""
    tokens: Mapping[str, str]
    """By field of the config: the tokens of the vocabulary that it has."""
    stands_in: str | None = None
    """The field whose token some vocabularies lack; another may stand in for it."""
    unused: str = ""
    """Pattern of tensors that the model does not need."""


def find_projector(tower: MmprojTower) -> Projector:
    """Of the type that a file names."""
    kind = tower.projector
    found = PROJECTORS.get(kind)
    if found is None:
        raise CheckpointError(
            f"{tower.source} has a projector of type {kind[:40]!r}; quire reads {', '.join(PROJECTORS)}."
            f"{did_you_mean(kind, PROJECTORS)}"
        )
    return found


def _tower_config(tower: MmprojTower, gelu: str) -> dict[str, Any]:
    """The fields that most encoders share."""
    return {
        "hidden_size": tower.size,
        "intermediate_size": tower.inner_size,
        "num_hidden_layers": tower.num_layers,
        "num_attention_heads": tower.num_heads,
        "image_size": tower.image_size,
        "patch_size": tower.patch_size,
        "layer_norm_eps": tower.eps,
        "hidden_act": tower.activation(gelu),
    }


def _llava(tower: MmprojTower) -> Told:
    """LLaVA 1.5, or LLaVA-NeXT where there is a vector behind rows of tiles.

    LLaVA reads the features before the last layer. Converters leave that one out and the norm behind it, so that all
    layers run that are there; llama.cpp leaves one more out where a file does not name the layer (its issue 25817).
    """
    is_clip, side = tower.has("v.class_embd", "v.class_embd.weight"), tower.image_size
    kind, gelu = ("clip_vision_model", "gelu") if is_clip else ("siglip_vision_model", "gelu_pytorch_tanh")
    config: dict[str, Any] = {
        "model_type": "llava",
        "vision_config": {"model_type": kind, **_tower_config(tower, gelu)},
        "vision_feature_layer": _feature_layer(tower),
        "vision_feature_select_strategy": "default" if is_clip else "full",
        "multimodal_projector_bias": tower.has("mm.0.bias", "mm.1.bias"),
    }
    image: dict[str, Any] = {"crop_size": side, "size": {"shortest_edge": side}, **tower.scaling(_CLIP_MEAN, _CLIP_STD)}
    if not is_clip:
        image |= {"image_processor_type": "SiglipImageProcessor", "size": {"height": side, "width": side}}
    pinpoints = tower.read.sizes_or_none("vision.image_grid_pinpoints")
    if tower.has(*_NEWLINES) and pinpoints:
        sizes = [list(pair) for pair in zip(pinpoints[::2], pinpoints[1::2], strict=False)]
        return Told({**config, "model_type": "llava_next"}, {**image, "image_grid_pinpoints": sizes})
    if tower.has(*_NEWLINES) or pinpoints:
        raise CheckpointError(
            f"{tower.source} has {'no ' if not pinpoints else ''}clip.vision.image_grid_pinpoints and "
            f"{'no ' if pinpoints else 'a '}vector behind rows of tiles; of LLaVA quire reads files with both or "
            "neither."
        )
    return Told(config, image)


def _feature_layer(tower: MmprojTower) -> int:
    is_whole = tower.has("v.post_ln.weight")
    layers = tower.read.sizes_or_none("vision.feature_layer") or [tower.num_layers - is_whole]
    if len(layers) > 1 or not 0 < layers[0] <= tower.num_layers:
        raise CheckpointError(
            f"{tower.source} reads the features of layers {layers[:8]} of {tower.num_layers} "
            "(clip.vision.feature_layer); quire reads those of one."
        )
    return layers[0]


def _qwen2_vl(tower: MmprojTower) -> Told:
    tower_config = {
        "embed_dim": tower.size,
        "depth": tower.num_layers,
        "num_heads": tower.num_heads,
        "mlp_ratio": _ratio(tower.inner_size, tower.size),
        "hidden_act": tower.activation("gelu"),
    }
    return _qwen(tower, "qwen2_vl", tower_config)


def _qwen2_5_vl(tower: MmprojTower) -> Told:
    """Windows are told by how often a layer has none."""
    every = tower.read.size("vision.n_wa_pattern")
    whole = [layer for layer in range(tower.num_layers) if (layer + 1) % every == 0]
    tower_config = {
        "hidden_size": tower.size,
        "depth": tower.num_layers,
        "num_heads": tower.num_heads,
        "intermediate_size": tower.inner_size,
        "hidden_act": tower.activation("gelu"),
        "window_size": tower.read.size_or_none("vision.window_size") or 112,
        "fullatt_block_indexes": whole,
        "tokens_per_second": 2,
    }
    return _qwen(tower, "qwen2_5_vl", tower_config)


def _qwen3_vl(tower: MmprojTower) -> Told:
    """Vectors of middle layers go to the language model too; each has a projector that is called by its layer."""
    is_deep = tower.read.flags_by_layer("vision.is_deepstack_layers", tower.num_layers) or []
    deep = [layer for layer, flag in enumerate(is_deep) if flag]
    tower_config = {
        "hidden_size": tower.size,
        "depth": tower.num_layers,
        "num_heads": tower.num_heads,
        "intermediate_size": tower.inner_size,
        "hidden_act": tower.activation("gelu_pytorch_tanh"),
        "num_position_embeddings": tower.width_of("v.position_embd.weight", 0),
        "deepstack_visual_indexes": deep,
        QKV_APART: tower.has("v.blk.0.attn_q.weight"),
    }
    told = _qwen(tower, "qwen3_vl", tower_config, _HALF, _HALF)
    parts = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}
    names = {
        f"visual.deepstack_merger_list.{number}.{part}": f"v.deepstack.{layer}.{stem}"
        for number, layer in enumerate(deep)
        for part, stem in parts.items()
    }
    return replace(told, names=names)


def _qwen(
    tower: MmprojTower,
    model_type: str,
    tower_config: dict[str, Any],
    mean: Sequence[float] = _CLIP_MEAN,
    std: Sequence[float] = _CLIP_STD,
) -> Told:
    """Images have 8 to 4,096 tokens where the file does not bound their pixels, as in llama.cpp."""
    merge = tower.read.size_or_none("vision.spatial_merge_size") or 2
    shared = {"patch_size": tower.patch_size, "temporal_patch_size": 2}
    square = (tower.patch_size * merge) ** 2
    settings: dict[str, Any] = {**shared, "merge_size": merge, **tower.scaling(mean, std)}
    given = {
        "min_pixels": tower.read.size_or_none("vision.image_min_pixels"),
        "max_pixels": tower.read.size_or_none("vision.image_max_pixels"),
    }
    bounds = {name: pixels for name, pixels in given.items() if pixels is not None}
    usual = {"min_pixels": 8 * square, "max_pixels": 4096 * square}
    whole = {**shared, "spatial_merge_size": merge, QKV_APART: True, **tower_config}
    config = {"model_type": model_type, "vision_config": whole}
    return Told(config, {**settings, **usual, **bounds}, {**settings, **bounds})


def _gemma3(tower: MmprojTower) -> Told:
    merge, side = tower.read.size_or_none("vision.projector.scale_factor") or 4, tower.image_size
    config = {
        "model_type": "gemma3",
        "vision_config": _tower_config(tower, "gelu_pytorch_tanh"),
        "mm_tokens_per_image": (side // tower.patch_size // merge) ** 2,
    }
    return Told(config, {"size": {"height": side, "width": side}, **tower.scaling(_HALF, _HALF)})


def _idefics3(tower: MmprojTower) -> Told:
    """Tiles are as large as what the encoder reads; how large an image is before it is cut is a setting."""
    tile = tower.image_size
    config = {
        "model_type": "idefics3",
        "vision_config": _tower_config(tower, "gelu_pytorch_tanh"),
        "scale_factor": tower.read.size_or_none("vision.projector.scale_factor") or 2,
    }
    longest = tower.read.size_or_none("vision.preproc_image_size") or 4 * tile
    image = {"size": {"longest_edge": longest}, "max_image_size": {"longest_edge": tile}}
    return Told(config, {**image, **tower.scaling(_HALF, _HALF)})


def _internvl(tower: MmprojTower) -> Told:
    """Larger encoders have RMS norms, which is told by norms without a bias."""
    if tower.has("v.blk.0.attn_q_norm.weight"):
        raise CheckpointError(f"{tower.source} norms queries and keys, which quire has no InternVL tower for.")
    side, patch = tower.image_size, tower.patch_size
    tower_config = {
        **_tower_config(tower, "gelu"),
        "image_size": [side, side],
        "patch_size": [patch, patch],
        "attention_bias": tower.has("v.blk.0.attn_q.bias"),
        "norm_type": "layer_norm" if tower.has("v.blk.0.ln1.bias") else "rms_norm",
        "use_mean_pooling": not tower.has("v.post_ln.weight"),
    }
    merge = tower.read.size_or_none("vision.projector.scale_factor") or 2
    config = {"model_type": "internvl", "vision_config": tower_config, "downsample_ratio": 1 / merge}
    image = {
        "size": {"height": side, "width": side},
        "crop_to_patches": True,
        "min_patches": tower.read.size_or_none("vision.preproc_min_tiles") or 1,
        "max_patches": tower.read.size_or_none("vision.preproc_max_tiles") or 12,
        **tower.scaling(_IMAGENET_MEAN, _IMAGENET_STD),
    }
    return Told(config, image)


def _pixtral(tower: MmprojTower) -> Told:
    if (tower.read.size_or_none("vision.spatial_merge_size") or 1) > 1 or tower.has("mm.patch_merger.weight"):
        raise CheckpointError(
            f"{tower.source} joins squares of patches before its projector, as Mistral Small 3.1 does; of Pixtral's "
            "kind quire reads files without that."
        )
    config = {
        "model_type": "llava",
        "vision_config": {"model_type": "pixtral", **_tower_config(tower, "gelu")},
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "multimodal_projector_bias": tower.has("mm.1.bias"),
    }
    image = {"size": {"longest_edge": tower.image_size}, "patch_size": tower.patch_size}
    return Told(config, {**image, **tower.scaling(_CLIP_MEAN, _CLIP_STD)})


def _ratio(inner: int, size: int) -> float:
    """Whoever multiplies and rounds down must get the size back."""
    share = inner / size
    return share if int(share * size) == inner else math.nextafter(share, math.inf)


_LLAVA_NAMES = {
    "multi_modal_projector.linear_1": "mm.0",
    "multi_modal_projector.linear_2": "mm.2",
    "image_newline": "v.image_newline",
}
_QWEN_NAMES = {"visual.merger.mlp.0": "mm.0", "visual.merger.mlp.2": "mm.2"}
_QWEN3_NAMES = {"visual.merger.linear_fc1": "mm.0", "visual.merger.linear_fc2": "mm.2"}
_GEMMA_NAMES = {
    "multi_modal_projector.mm_input_projection_weight": "mm.input_projection",
    "multi_modal_projector.mm_soft_emb_norm": "mm.soft_emb_norm",
}
_INTERNVL_NAMES = {
    "multi_modal_projector.layer_norm": "mm.model.mlp.0",
    "multi_modal_projector.linear_1": "mm.model.mlp.1",
    "multi_modal_projector.linear_2": "mm.model.mlp.3",
}
_PIXTRAL_NAMES = {"multi_modal_projector.linear_1": "mm.1", "multi_modal_projector.linear_2": "mm.2"}
_QWEN_TOKENS = {_IMAGE: "<|image_pad|>", "video_token_id": "<|video_pad|>"}
_GEMMA_TOKENS = {_IMAGE: "<image_soft_token>", "boi_token_id": "<start_of_image>", "eoi_token_id": "<end_of_image>"}

PROJECTORS: dict[str, Projector] = {
    "mlp": Projector(_llava, (), ("mm.2.weight", 0), _LLAVA_NAMES, {_IMAGE: "<image>"}, _IMAGE, r"v\.post_ln\..*"),
    "qwen2vl_merger": Projector(_qwen2_vl, ("qwen2vl",), ("mm.2.weight", 0), _QWEN_NAMES, _QWEN_TOKENS),
    "qwen2.5vl_merger": Projector(_qwen2_5_vl, ("qwen2vl",), ("mm.2.weight", 0), _QWEN_NAMES, _QWEN_TOKENS),
    "qwen3vl_merger": Projector(_qwen3_vl, ("qwen3vl",), ("mm.2.weight", 0), _QWEN3_NAMES, _QWEN_TOKENS),
    "gemma3": Projector(_gemma3, ("gemma3",), ("mm.input_projection.weight", 1), _GEMMA_NAMES, _GEMMA_TOKENS, _IMAGE),
    "idefics3": Projector(
        _idefics3,
        ("llama",),
        ("mm.model.fc.weight", 0),
        {"model.connector.modality_projection.proj": "mm.model.fc"},
        {_IMAGE: "<image>"},
    ),
    "internvl": Projector(
        _internvl,
        ("llama", "qwen2", "qwen3", "qwen3moe"),
        ("mm.model.mlp.3.weight", 0),
        _INTERNVL_NAMES,
        {_IMAGE: "<IMG_CONTEXT>"},
    ),
    "pixtral": Projector(
        _pixtral,
        ("llama",),
        ("mm.2.weight", 0),
        _PIXTRAL_NAMES,
        {_IMAGE: "[IMG]"},
        unused=r"v\.token_embd\.img_break(\.weight)?",  # the language model has the token's embedding
    ),
}
"""By `clip.projector_type`."""
