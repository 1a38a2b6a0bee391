"""LLaVA-NeXT and LLaVA-OneVision: an image whole and in tiles, of which the border is left out again."""

import math

from quire.core.errors import CheckpointError
from quire.multimodal.anyres import Size, feature_layout
from quire.multimodal.families.llava import fixed_recipe, image_mark
from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Anyres, Cooked, Frames, Sampling, Square
from quire.multimodal.settings import BICUBIC, CLIP_MEAN, CLIP_STD, SCALED, Settings

_SHARED = {**SCALED, "resample": BICUBIC, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}
_NEXT = {
    **_SHARED,
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
}
_ONEVISION = {
    **_SHARED,
    "size": {"height": 384, "width": 384},
    "image_grid_pinpoints": [[384 * down, 384 * across] for down in range(1, 7) for across in range(1, 7)],
}
_FRAMES = 32
"""That are read of a video where the checkpoint leaves their choice to who calls its processor."""
_BYTE = 255


def llava_next(files: ProcessorFiles) -> Processors:
    return {"image": _image(files, files.image.over(_NEXT), None)}


def llava_onevision(files: ProcessorFiles) -> Processors:
    settings = files.image.over(_ONEVISION)
    most = str(files.config.get("vision_aspect_ratio") or "anyres_max_9").removeprefix("anyres_max_")
    if not most.isdecimal() or not int(most):
        raise CheckpointError(f"the model's config.json has vision_aspect_ratio {most!r}; quire knows anyres_max_N.")
    return {"image": _image(files, settings, int(most)), "video": _video(files)}


def _image(files: ProcessorFiles, settings: Settings, most_tiles: int | None) -> MediaProcessor:
    """Several images of OneVision are not tiled."""
    tile, side = settings.sides("size"), features_a_side(files)
    if settings.flag("crop_size") and settings.sides("crop_size") != tile:
        raise CheckpointError(f"{settings.source} resizes tiles to {tile} and cuts them then; quire reads whole tiles.")
    recipe = Anyres(_resolutions(settings, tile), tile, settings.filter)
    rescale, mean, std = settings.scaling()
    among_others = None
    if most_tiles is not None:
        red, green, blue = (int(channel * _BYTE) for channel in mean)
        among_others = Square(tile, (red, green, blue), settings.filter)
    token = files.token("image_token_index", "image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        if cooked.shape[0] == 1:
            return [side**2 + 1]
        return [side**2 + feature_layout(cooked.size, cooked.tiles, side, most_tiles).num_tokens]

    text, written = image_mark(files)
    return MediaProcessor(recipe, rescale, mean, std, token, token, pieces, text, among_others, written=written)


def _video(files: ProcessorFiles) -> MediaProcessor:
    """Every frame in a quarter of an image's tokens, and one behind all."""
    settings = files.video.over(_ONEVISION)
    count = settings.number("num_frames") if settings.flag("num_frames") else _FRAMES
    rate = settings.positive("fps") if settings.flag("fps") and not settings.flag("num_frames") else None
    sampling = Sampling("parts", rate, None if rate else count)
    each = math.ceil(features_a_side(files) / 2) ** 2
    token = files.token("video_token_index", "video_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        return [cooked.shape[0] * each + 1]

    recipe = Frames(fixed_recipe(settings), sampling)
    return MediaProcessor(recipe, *settings.scaling(), token, token, pieces, "<video>\n")


def features_a_side(files: ProcessorFiles) -> int:
    """Of one tile."""
    tower = files.tower.over({"image_size": 336, "patch_size": 14})
    return tower.number("image_size") // tower.number("patch_size")


def _resolutions(settings: Settings, tile: Size) -> tuple[Size, ...]:
    given = settings.values["image_grid_pinpoints"]
    if not isinstance(given, list) or not given:
        raise CheckpointError(f"{settings.source} must give image_grid_pinpoints as a list of heights and widths.")
    found = tuple((int(height), int(width)) for height, width in given)
    if any(height < 1 or width < 1 or height % tile[0] or width % tile[1] for height, width in found):
        raise CheckpointError(f"{settings.source} has image_grid_pinpoints that are not whole tiles of {tile}.")
    return found
