"""Phi-3-vision and Phi-3.5-vision: crops of an image, each in a quarter of its patches, and the whole behind them."""

import re

from quire.core.errors import CheckpointError
from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Cooked, Crops
from quire.multimodal.settings import CLIP_MEAN, CLIP_STD, SCALED

_PHI3_VISION = {**SCALED, "num_crops": 1, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}
_IMAGE = "<|image|>"
_NUMBERED = re.compile(r"<\|image_([0-9]+)\|>")
_JOINED = 2
"""Patches a side of the square that becomes one token."""


def phi3_vision(files: ProcessorFiles) -> Processors:
    settings = files.image.over(_PHI3_VISION)
    tower = files.tower.over({"image_size": 336, "patch_size": 14})
    side = tower.number("image_size")
    each = side // (tower.number("patch_size") * _JOINED)
    given = settings.values.get("num_img_tokens", each**2)
    if given != each**2:
        raise CheckpointError(f"{settings.source} gives num_img_tokens {given!r}; the model's tower makes {each**2}.")
    token = files.special_token(_IMAGE)

    def pieces(cooked: Cooked) -> list[Piece]:
        rows, columns = (count * each for count in cooked.tiles)
        return [rows * (columns + 1) + 1 + each * (each + 1)]

    recipe = Crops(side, settings.number("num_crops"))
    return {
        "image": MediaProcessor(
            recipe,
            *settings.scaling(),
            token,
            token,
            pieces,
            f"{_IMAGE}\n",
            written="<|image_1|>",
            numbered=_NUMBERED,
            cuts_texts=True,
        )
    }
