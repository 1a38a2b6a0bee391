"""InternVL: tiles in the arrangement that suits the picture's shape."""

from quire.core.errors import CheckpointError
from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Cooked, Tiles
from quire.multimodal.settings import BICUBIC, SCALED

_INTERNVL = {
    **SCALED,
    "size": {"height": 448, "width": 448},
    "crop_to_patches": False,
    "min_patches": 1,
    "max_patches": 12,
    "resample": BICUBIC,
    "image_mean": (0.485, 0.456, 0.406),
    "image_std": (0.229, 0.224, 0.225),
}


def internvl(files: ProcessorFiles) -> Processors:
    settings = files.image.over(_INTERNVL)
    size = settings.sides("size")
    merge = round(1 / float(files.config.get("downsample_ratio") or 0.5))
    (height, width), (patch, _) = files.tower.sides("image_size"), files.tower.sides("patch_size")
    each = (height // patch // merge) * (width // patch // merge)
    if size != (height, width):
        raise CheckpointError(
            f"{settings.source} makes pictures of {size}, and the model's tower reads {(height, width)}."
        )
    most = settings.number("max_patches") if settings.flag("crop_to_patches") else 1
    recipe = Tiles(size, min(settings.number("min_patches"), most), most, settings.filter)
    token = files.token("image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        return ["<img>", each * cooked.shape[0], "</img>"]

    return {"image": MediaProcessor(recipe, *settings.scaling(), token, token, pieces, "<IMG_CONTEXT>\n")}
