"""What Llama 4's processor makes of pictures, in plain torch: transformers' own class needs torchvision, which tests do
not install, since with it the processors of all other families would be other ones too."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor


class Llama4Pictures:
    """Tiles of `side`, at most `most` of an image."""

    def __init__(self, side: int, most: int) -> None:
        self._side, self._most = side, most

    def to_dict(self) -> dict[str, Any]:
        size = {"height": self._side, "width": self._side}
        return {"image_processor_type": "Llama4ImageProcessorFast", "size": size, "max_patches": self._most}

    def __call__(self, images: Sequence[Image.Image], return_tensors: str) -> dict[str, Tensor]:
        assert return_tensors == "pt"
        made = [self._tiles(image) for image in images]
        return {
            "pixel_values": torch.cat([tiles for tiles, _ in made]),
            "aspect_ratios": torch.tensor([shape for _, shape in made]),
        }

    def _tiles(self, image: Image.Image) -> tuple[Tensor, tuple[int, int]]:
        side = self._side
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
        rows, columns = self._sheet(*pixels.shape[2:])
        height, width = self._size(*pixels.shape[2:], rows * side, columns * side)
        sheet = torch.zeros(3, rows * side, columns * side, dtype=torch.uint8)
        sheet[:, :height, :width] = _resized(pixels, height, width)
        tiles = sheet.view(3, rows, side, columns, side).permute(1, 3, 0, 2, 4).flatten(0, 1)
        if rows * columns > 1:
            tiles = torch.cat((tiles, _resized(pixels, side, side)[None]))
        rounded = tiles.to(torch.bfloat16) * (1 / 255)
        half = torch.tensor(0.5, dtype=torch.bfloat16)
        return ((rounded - half) / half).float(), (rows, columns)

    def _sheet(self, height: int, width: int) -> tuple[int, int]:
        """The least enlarging that a sheet allows, or the least shrinking; of equal ones the least tiles."""
        counts = range(self._most, 0, -1)
        every = [(rows, count // rows) for count in counts for rows in range(1, count + 1) if count % rows == 0]
        shapes = list(dict.fromkeys(rows / columns for rows, columns in every))
        sheets = sorted(every, key=lambda sheet: shapes.index(sheet[0] / sheet[1]))
        side = torch.tensor(float(self._side))
        scales = [float(torch.minimum(side * rows / height, side * columns / width)) for rows, columns in sheets]
        growing = [scale for scale in scales if scale >= 1]
        chosen = min(growing) if growing else max(scales)
        alike = [sheet for sheet, scale in zip(sheets, scales, strict=True) if scale == chosen]
        return min(alike, key=math.prod)

    def _size(self, height: int, width: int, sheet_height: int, sheet_width: int) -> tuple[int, int]:
        """In its own shape, grown to one tile at most."""

        def bound(own: int, sheet: int) -> Any:
            grown = max(own, self._side)
            return torch.tensor(sheet) if sheet < grown else grown

        to_height, to_width = bound(height, sheet_height), bound(width, sheet_width)
        across, down = to_width / width, to_height / height
        if across < down:
            return max(1, min(math.floor(height * across), int(to_height))), int(to_width)
        return int(to_height), max(1, min(math.floor(width * down), int(to_width)))


def _resized(pixels: Tensor, height: int, width: int) -> Tensor:
    """Bytes by torch's own kernel, as torchvision calls it."""
    return torch.nn.functional.interpolate(pixels, size=(height, width), mode="bilinear", antialias=True)[0]
