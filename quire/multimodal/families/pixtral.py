"""Pixtral: a picture in its own shape; a row of patches ends with a token of its own, and so does the image."""

from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Bounded, Cooked
from quire.multimodal.settings import BICUBIC, CLIP_MEAN, CLIP_STD, SCALED

_PIXTRAL = {
    **SCALED,
    "size": {"longest_edge": 1024},
    "patch_size": 16,
    "resample": BICUBIC,
    "image_mean": CLIP_MEAN,
    "image_std": CLIP_STD,
}


def pixtral(files: ProcessorFiles) -> Processors:
    settings = files.image.over(_PIXTRAL)
    side = settings.sides("patch_size")[0]
    recipe = Bounded(settings.sides("size")[0], side, settings.filter)
    token = files.token("image_token_index", "image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        _, height, width, _ = cooked.shape
        rows: list[Piece] = [width // side, "[IMG_BREAK]"] * (height // side)
        return [*rows[:-1], "[IMG_END]"]

    return {"image": MediaProcessor(recipe, *settings.scaling(), token, token, pieces, "[IMG]")}
