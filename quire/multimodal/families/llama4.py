"""Llama 4: tiles with a token between them and one behind each row, and the whole image behind them."""

from quire.core.errors import CheckpointError
from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Cooked, Sheet
from quire.multimodal.settings import BILINEAR, HALF, SCALED

_LLAMA4 = {
    **SCALED,
    "size": {"height": 336, "width": 336},
    "max_patches": 16,
    "resample": BILINEAR,
    "image_mean": HALF,
    "image_std": HALF,
}
_IMAGE = "<|image|>"


def llama4(files: ProcessorFiles) -> Processors:
    settings = files.image.over(_LLAMA4)
    tower = files.tower.over({"image_size": 448, "patch_size": 14, "pixel_shuffle_ratio": 0.5})
    tile, side = settings.sides("size"), tower.sides("image_size")
    if tile != side or tile[0] != tile[1]:
        raise CheckpointError(
            f"{settings.source} makes tiles of {tile}, and the model's tower reads squares of {side}."
        )
    if settings.filter != BILINEAR:
        raise CheckpointError(
            f"{settings.source} gives resample as {settings.filter}; for Llama 4 quire has {BILINEAR}, bilinear, alone."
        )
    recipe = Sheet(tile[0], settings.number("max_patches"), enlarges=settings.flag("resize_to_max_canvas"))
    merge = round(1 / tower.positive("pixel_shuffle_ratio"))
    each = (tile[0] // tower.sides("patch_size")[0] // merge) ** 2

    def pieces(cooked: Cooked) -> list[Piece]:
        rows, columns = cooked.tiles
        if rows * columns == 1:
            return [f"<|image_start|>{_IMAGE}", each, "<|image_end|>"]
        more: list[Piece] = ["<|tile_x_separator|>", each]
        row: list[Piece] = [each, *more * (columns - 1), "<|tile_y_separator|>"]
        return ["<|image_start|>", *row * rows, _IMAGE, each, "<|image_end|>"]

    return {
        "image": MediaProcessor(
            recipe,
            *settings.scaling(),
            token=files.token("image_token_index", "image_token_id"),
            marker=files.special_token(_IMAGE),
            pieces=pieces,
            text=_IMAGE,
            is_rounded=True,
        )
    }
