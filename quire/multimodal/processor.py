"""MediaProcessor: what becomes of an image on its way into a prompt, by the checkpoint's files. One row a family."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.multimodal.recipes import Bounded, Cooked, Fixed, Recipe, Split, Tiles, Whole
from quire.multimodal.settings import (
    BICUBIC,
    CLIP_MEAN,
    CLIP_STD,
    HALF,
    LANCZOS,
    Settings,
    image_settings,
    read_json,
)

Piece = int | str
"""So many placeholder tokens, or a text between them."""


@dataclass(frozen=True, slots=True)
class MediaProcessor:
    """Of one model."""

    recipe: Recipe
    rescale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    token: int
    """The placeholder token, for which an embedding is put in."""
    marker: int
    """The token by which a prompt says that an image stands here; its pieces take its place."""
    pieces: Callable[[Cooked], list[Piece]]
    """What an image becomes in the prompt."""
    text: str
    """How a prompt says it in words, for chat templates that know no images."""


def read_processor(path: Path) -> MediaProcessor | None:
    """Of the model in a folder; None where it reads texts alone, or quire does not know how it reads images."""
    config = read_json(path / "config.json") if path.is_dir() else {}
    make = _FAMILIES.get(str(config.get("model_type", "")))
    if make is None or not isinstance(config.get("vision_config"), dict):
        return None
    return make(config, image_settings(path))


def _token(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    raise CheckpointError(f"the model's config.json does not give {' or '.join(names)}, the token of images.")


# --- LLaVA 1.5 -------------------------------------------------------------------------------------------------------

_SCALED = {"do_resize": True, "do_rescale": True, "do_normalize": True}
_CLIP = {
    **_SCALED,
    "do_center_crop": True,
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "resample": BICUBIC,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
}
_SIGLIP = {**_SCALED, "size": {"height": 224, "width": 224}, "resample": BICUBIC, "image_mean": HALF, "image_std": HALF}


def fixed_recipe(settings: Settings) -> Fixed:
    """Resize and cut, as far as the settings say."""
    size = settings.values.get("size")
    shorter = size.get("shortest_edge") if isinstance(size, dict) else None
    resize = (shorter if isinstance(shorter, int) else settings.sides("size")) if settings.flag("do_resize") else None
    crop = settings.sides("crop_size") if settings.flag("do_center_crop") else None
    if crop is None and not isinstance(resize, tuple):
        raise CheckpointError(
            f"{settings.source} leaves pictures in sizes of their own, and the model's tower has one."
        )
    return Fixed(resize, crop, settings.filter)


def _llava(config: Mapping[str, Any], settings: Settings) -> MediaProcessor:
    if config["vision_config"].get("model_type") == "pixtral":
        return _pixtral(config, settings)
    is_siglip = settings.text("image_processor_type").startswith("Siglip")
    settings = settings.over(_SIGLIP if is_siglip else _CLIP)
    if settings.flag("do_pad"):
        raise CheckpointError(
            f"{settings.source} pads pictures to squares, which quire does not do for LLaVA; set do_pad to false."
        )
    tower = Settings(config["vision_config"], "the config of the vision tower").over(
        {"image_size": 336, "patch_size": 14}
    )
    count = (tower.number("image_size") // tower.number("patch_size")) ** 2
    token = _token(config, "image_token_index", "image_token_id")
    return MediaProcessor(
        fixed_recipe(settings), *settings.scaling(), token, token, lambda cooked: [count], "<image>\n"
    )


# --- Qwen2-VL and its successors -------------------------------------------------------------------------------------

_QWEN2_VL = {
    **_SCALED,
    "resample": BICUBIC,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
}


def _qwen_vl(config: Mapping[str, Any], settings: Settings) -> MediaProcessor:
    settings = settings.over(_QWEN2_VL)
    size = settings.values.get("size")
    bounds = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}
    if isinstance(size, dict):
        bounds |= {
            "min_pixels": size.get("shortest_edge", 56 * 56),
            "max_pixels": size.get("longest_edge", 28 * 28 * 1280),
        }
    settings = settings.over(bounds)
    side = settings.number("patch_size") * settings.number("merge_size")
    recipe = Whole(side, settings.number("min_pixels"), settings.number("max_pixels"), settings.filter)
    token = _token(config, "image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        _, height, width, _ = cooked.shape
        return [(height // side) * (width // side)]

    text = "<|vision_start|><|image_pad|><|vision_end|>"
    return MediaProcessor(recipe, *settings.scaling(), token, token, pieces, text)


# --- Pixtral ---------------------------------------------------------------------------------------------------------

_PIXTRAL = {
    **_SCALED,
    "size": {"longest_edge": 1024},
    "patch_size": 16,
    "resample": BICUBIC,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
}


def _pixtral(config: Mapping[str, Any], settings: Settings) -> MediaProcessor:
    """A row of patches ends with a token of its own, and so does the image."""
    settings = settings.over(_PIXTRAL)
    side = settings.sides("patch_size")[0]
    recipe = Bounded(settings.sides("size")[0], side, settings.filter)
    token = _token(config, "image_token_index", "image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        _, height, width, _ = cooked.shape
        rows: list[Piece] = [width // side, "[IMG_BREAK]"] * (height // side)
        return [*rows[:-1], "[IMG_END]"]

    return MediaProcessor(recipe, *settings.scaling(), token, token, pieces, "[IMG]")


# --- InternVL --------------------------------------------------------------------------------------------------------

_INTERNVL = {
    **_SCALED,
    "size": {"height": 448, "width": 448},
    "crop_to_patches": False,
    "min_patches": 1,
    "max_patches": 12,
    "resample": BICUBIC,
    "image_mean": (0.485, 0.456, 0.406),
    "image_std": (0.229, 0.224, 0.225),
}


def _internvl(config: Mapping[str, Any], settings: Settings) -> MediaProcessor:
    settings = settings.over(_INTERNVL)
    size = settings.sides("size")
    tower = Settings(config["vision_config"], "the config of the vision tower")
    merge = round(1 / float(config.get("downsample_ratio") or 0.5))
    (height, width), (patch, _) = tower.sides("image_size"), tower.sides("patch_size")
    each = (height // patch // merge) * (width // patch // merge)
    if size != (height, width):
        raise CheckpointError(
            f"{settings.source} makes pictures of {size}, and the model's tower reads {(height, width)}."
        )
    most = settings.number("max_patches") if settings.flag("crop_to_patches") else 1
    recipe = Tiles(size, min(settings.number("min_patches"), most), most, settings.filter)
    token = _token(config, "image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        return ["<img>", each * cooked.shape[0], "</img>"]

    return MediaProcessor(recipe, *settings.scaling(), token, token, pieces, "<IMG_CONTEXT>\n")


# --- Idefics 3 and SmolVLM -------------------------------------------------------------------------------------------

_IDEFICS3 = {
    **_SCALED,
    "size": {"longest_edge": 4 * 364},
    "max_image_size": {"longest_edge": 364},
    "do_image_splitting": True,
    "resample": LANCZOS,
    "image_mean": HALF,
    "image_std": HALF,
}
_AROUND = "<fake_token_around_image>"


def _idefics3(config: Mapping[str, Any], settings: Settings) -> MediaProcessor:
    """Tiles with the names of their places, and the whole image behind them."""
    settings = settings.over(_IDEFICS3)
    tile = settings.sides("max_image_size")[0]
    recipe = Split(settings.sides("size")[0], tile, settings.flag("do_image_splitting"), settings.filter)
    tower = Settings(config["vision_config"], "the config of the vision tower").over({"patch_size": 32})
    each = (tile // tower.number("patch_size") // int(config.get("scale_factor") or 2)) ** 2
    token = _token(config, "image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        rows, columns = cooked.tiles
        found: list[Piece] = []
        for row in range(rows):
            for column in range(columns):
                found += [f"{_AROUND}<row_{row + 1}_col_{column + 1}>", each]
            found.append("\n")
        before = f"\n{_AROUND}" if found else _AROUND
        if found:  # two line breaks are one token
            before = f"{found.pop()}{before}"
        return [*found, f"{before}<global-img>", each, _AROUND]

    return MediaProcessor(recipe, *settings.scaling(), token, token, pieces, "<image>")


# --- CLIP and SigLIP, which embed ------------------------------------------------------------------------------------

IMAGE_ALONE = 0
"""The token that stands for an image where a prompt is an image and nothing else."""


def _clip(config: Mapping[str, Any], settings: Settings) -> MediaProcessor:
    settings = settings.over(_SIGLIP if config.get("model_type") == "siglip" else _CLIP)
    scaling, recipe = settings.scaling(), fixed_recipe(settings)
    return MediaProcessor(recipe, *scaling, IMAGE_ALONE, IMAGE_ALONE, lambda cooked: [1], "")


_FAMILIES: dict[str, Callable[[Mapping[str, Any], Settings], MediaProcessor]] = {
    "clip": _clip,
    "siglip": _clip,
    "llava": _llava,
    "internvl": _internvl,
    "idefics3": _idefics3,
    "smolvlm": _idefics3,
    "qwen2_vl": _qwen_vl,
    "qwen2_5_vl": _qwen_vl,
}
