"""LLaVA 1.5: one picture of one size; with Pixtral's tower, Pixtral's own."""

from quire.core.errors import CheckpointError
from quire.multimodal.families.pixtral import pixtral
from quire.multimodal.processor import MediaProcessor, ProcessorFiles, Processors
from quire.multimodal.recipes import Fixed
from quire.multimodal.settings import BICUBIC, CLIP_MEAN, CLIP_STD, HALF, SCALED, Settings

CLIP = {
    **SCALED,
    "do_center_crop": True,
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "resample": BICUBIC,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
}
_IMAGE = "<image>"
SIGLIP = {**SCALED, "size": {"height": 224, "width": 224}, "resample": BICUBIC, "image_mean": HALF, "image_std": HALF}


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


def llava(files: ProcessorFiles) -> Processors:
    if files.config["vision_config"].get("model_type") == "pixtral":
        return pixtral(files)
    settings = files.image
    is_siglip = settings.text("image_processor_type").startswith("Siglip")
    settings = settings.over(SIGLIP if is_siglip else CLIP)
    if settings.flag("do_pad"):
        raise CheckpointError(
            f"{settings.source} pads pictures to squares, which quire does not do for LLaVA; set do_pad to false."
        )
    tower = files.tower.over({"image_size": 336, "patch_size": 14})
    count = (tower.number("image_size") // tower.number("patch_size")) ** 2
    token = files.token("image_token_index", "image_token_id")
    recipe, scaling = fixed_recipe(settings), settings.scaling()
    text, written = image_mark(files)
    return {"image": MediaProcessor(recipe, *scaling, token, token, lambda cooked: [count], text, written=written)}


def image_mark(files: ProcessorFiles) -> tuple[str, str | None]:
    """How a prompt says that an image stands here, and what prompts say where the vocabulary has no token for that."""
    return (f"{files.stand_in}\n", _IMAGE) if files.stand_in else (f"{_IMAGE}\n", None)
