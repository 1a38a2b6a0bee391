"""How LLaVA-NeXT and OneVision lay out an image of any size: which arrangement of tiles holds it, and which of their
features are the image's own. No torch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

Size = tuple[int, int]
"""Height and width."""
_LEAST_SHRINK = 1.1


@dataclass(frozen=True, slots=True)
class FeatureLayout:
    """Of the features of all tiles together: what lies on the image, and how many are left of that."""

    top: int
    left: int
    kept: Size
    shrunk: Size

    @property
    def num_tokens(self) -> int:
        """With one behind each row."""
        return self.shrunk[0] * (self.shrunk[1] + 1)


def best_resolution(size: Size, resolutions: Iterable[Size]) -> Size | None:
    """The one that keeps most of a picture's pixels and wastes least of its own; None where none keeps any."""
    best, most, least_wasted = None, 0, math.inf
    for height, width in resolutions:
        scale = min(width / size[1], height / size[0])
        kept = min(int(size[1] * scale) * int(size[0] * scale), size[0] * size[1])
        wasted = height * width - kept
        if kept > most or (kept == most and kept and wasted < least_wasted):
            best, most, least_wasted = (height, width), kept, wasted
    return best


def feature_layout(size: Size, tiles: Size, side: int, most_tiles: int | None) -> FeatureLayout:
    """Of a picture of `size` pixels in so many rows and columns of tiles with `side` × `side` features each; more than
    `most_tiles` of them are made fewer."""
    height, width = tiles[0] * side, tiles[1] * side
    top = left = 0
    if size[1] / size[0] > width / height:
        top = (height - int(round(size[0] * (width / size[1]), 7))) // 2
    else:
        left = (width - int(round(size[1] * (height / size[0]), 7))) // 2
    kept = (height - 2 * top, width - 2 * left)
    shrink = 1.0 if most_tiles is None else math.sqrt(math.prod(kept) / (most_tiles * side**2))
    if shrink <= _LEAST_SHRINK:
        return FeatureLayout(top, left, kept, kept)
    return FeatureLayout(top, left, kept, (int(kept[0] // shrink), int(kept[1] // shrink)))
