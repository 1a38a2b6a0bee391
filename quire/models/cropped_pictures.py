"""CroppedPictures: an image's crops and the whole of it as Phi-3.5-vision reads them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from quire.core.media import MediaItem
from quire.layers.embedding import Embedding
from quire.layers.policy import WeightPolicy
from quire.spec.vision import CropsSpec


class CroppedPictures(nn.Module):
    """The crops' embeddings first, laid together and row by row, a vector behind each row; one more, and the whole's in
    the same way."""

    def __init__(self, spec: CropsSpec, merge: int, policy: WeightPolicy) -> None:
        """`merge` is how many patches a side become one embedding."""
        super().__init__()
        self._joined = merge**2
        self._row_end = Embedding(spec.row_end, policy)
        self._crops_end = Embedding(spec.crops_end, policy)
        self._first = torch.zeros(1, dtype=torch.int64, device=policy.device)

    def whole(self, crops: Tensor, tiles: tuple[int, int]) -> Tensor:
        """All crops of one image [crops, side, side, 3] as one of their size, [1, side, side, 3]."""
        side = crops.shape[1]
        image = _laid(crops, tiles).permute(2, 0, 1)[None]
        return nn.functional.interpolate(image, size=(side, side), mode="bicubic").permute(0, 2, 3, 1)

    def forward(self, item: MediaItem, x: Tensor, project: Callable[[Tensor], Tensor]) -> Tensor:
        """`x`: [pictures * features, hidden], the whole first. `project` makes embeddings of what the tower makes."""
        rows, columns = item.tiles
        count = 1 + rows * columns
        side = math.isqrt(x.shape[0] // count)
        pictures = x.view(count, side, side, -1)
        row_end, crops_end = (
            project(matrix(self._first).view(self._joined, -1)) for matrix in (self._row_end, self._crops_end)
        )
        crops = _laid(pictures[1:], item.tiles)
        return torch.cat((_rows(crops, row_end), crops_end, _rows(pictures[0], row_end)))


def _laid(pictures: Tensor, tiles: tuple[int, int]) -> Tensor:
    """[pictures, side, side, numbers], row by row, as one [height, width, numbers]."""
    return pictures.view(*tiles, *pictures.shape[1:]).permute(0, 2, 1, 3, 4).flatten(2, 3).flatten(0, 1)


def _rows(picture: Tensor, row_end: Tensor) -> Tensor:
    """[height, width, hidden] as [height * (width + 1), hidden]."""
    return torch.cat((picture, row_end.expand(picture.shape[0], 1, -1)), dim=1).flatten(0, 1)
