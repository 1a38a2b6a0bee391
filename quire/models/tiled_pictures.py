"""TiledPictures: embeddings of an image's tiles laid together as LLaVA-NeXT and OneVision do it."""

import math

import torch
from torch import Tensor, nn

from quire.core.media import MediaItem
from quire.layers.embedding import Embedding
from quire.layers.policy import WeightPolicy
from quire.multimodal.anyres import feature_layout
from quire.spec.vision import TilingSpec


class TiledPictures(nn.Module):
    """The whole picture's embeddings first, then those of its tiles row by row, each row with a vector behind it."""

    def __init__(self, spec: TilingSpec, policy: WeightPolicy) -> None:
        super().__init__()
        self._most_tiles = spec.most_tiles
        self._newline = Embedding(spec.newline, policy)
        self._first = torch.zeros(1, dtype=torch.int64, device=policy.device)

    def forward(self, item: MediaItem, x: Tensor) -> Tensor:
        """`x`: [pictures * features, hidden], picture by picture."""
        assert item.pixels is not None, "an item of pictures"
        newline: Tensor = self._newline(self._first)
        assert item.pixels is not None, "an item of pictures"
        count = item.pixels.shape[0]
        pictures = x.view(count, -1, x.shape[1])
        side = math.isqrt(pictures.shape[1])
        if item.kind == "video":
            half = math.ceil(side / 2)
            return torch.cat((_resized(pictures.view(count, side, side, -1), (half, half)).flatten(0, 2), newline))
        if count == 1:
            return torch.cat((x, newline))
        layout = feature_layout(item.size, item.tiles, side, self._most_tiles)
        tiles = pictures[1:].view(*item.tiles, side, side, -1)
        laid = tiles.permute(0, 2, 1, 3, 4).flatten(0, 1).flatten(1, 2)
        (height, width), top, left = layout.kept, layout.top, layout.left
        laid = laid[top : top + height, left : left + width]
        if layout.shrunk != layout.kept:
            laid = _resized(laid[None], layout.shrunk)[0]
        rows = torch.cat((laid, newline.expand(laid.shape[0], 1, -1)), dim=1)
        return torch.cat((pictures[0], rows.flatten(0, 1)))


def _resized(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    """[pictures, height, width, hidden] in another height and width."""
    moved = nn.functional.interpolate(pictures.permute(0, 3, 1, 2), size=size, mode="bilinear")
    return moved.permute(0, 2, 3, 1)
