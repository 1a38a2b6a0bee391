"""Recipes: what a model's processor does to pictures before their numbers are scaled. Plain numbers; `pictures` cooks.

A recipe travels to the process that decodes, so each is a message.
"""

from typing import Literal

import msgspec

Filter = Literal[0, 1, 2, 3, 4, 5]
"""Pillow's numbers of resampling filters, which preprocessor_config.json has too: 2 is bilinear, 3 bicubic."""


class _Recipe(msgspec.Struct, frozen=True, tag=True):
    pass


class Fixed(_Recipe, frozen=True):
    """One picture of one size, whatever comes: CLIP's and SigLIP's."""

    resize: tuple[int, int] | int | None
    """Height and width; or the shorter side, the other keeping its share; None: as it is."""
    crop: tuple[int, int] | None
    """What is cut out of the middle."""
    filter: Filter


class Whole(_Recipe, frozen=True):
    """The picture in its own shape, near its own size: sides are multiples of `factor`, within bounds of pixels."""

    factor: int
    min_pixels: int
    max_pixels: int
    filter: Filter


class Bounded(_Recipe, frozen=True):
    """The picture in its own shape, no side longer than `longest`, filled up to whole patches: Pixtral's."""

    longest: int
    patch: int
    filter: Filter


class Tiles(_Recipe, frozen=True):
    """Tiles of one size in the arrangement that suits the picture's shape, and where there are several the whole of it
    once more: InternVL's."""

    size: tuple[int, int]
    least: int
    most: int
    filter: Filter


class Split(_Recipe, frozen=True):
    """Enlarged or shrunk to `longest`, then to whole squares of `tile`, and the whole of it once more: Idefics 3's."""

    longest: int
    tile: int
    splits: bool
    """Otherwise it becomes one square."""
    filter: Filter


class Anyres(_Recipe, frozen=True):
    """The whole picture as one tile, and tiles of it in the one of several sizes that suits it: LLaVA-NeXT's."""

    resolutions: tuple[tuple[int, int], ...]
    tile: tuple[int, int]
    filter: Filter


class Sheet(_Recipe, frozen=True):
    """Shrunk as little as may be onto the smallest sheet of tiles that holds it, black to its right and below; where
    there are several tiles, the whole of it once more: Llama 4's. The filter is bilinear, as torch has it."""

    tile: int
    most: int
    enlarges: bool = False
    """Onto the sheet that it grows most on; otherwise nothing grows beyond one tile."""


class Crops(_Recipe, frozen=True):
    """Enlarged or shrunk to as many squares of `side` along its longer side as `most` allow, white before and behind
    its shorter one: Phi-3.5-vision's. The filter is bilinear."""

    side: int
    most: int


class Square(_Recipe, frozen=True):
    """Filled up to a square with one color, and resized: what LLaVA-OneVision does with several images."""

    size: tuple[int, int]
    color: tuple[int, int, int]
    filter: Filter


class Sampling(msgspec.Struct, frozen=True):
    """Which frames of a video are read."""

    rule: Literal["steps", "parts", "spread"]
    """In equal steps from the first on, the first of equal parts, or spread from the first to the last."""
    per_second: float | None
    count: int | None = None
    """So many, whatever it lasts; one of both is given."""
    least: int = 1
    most: int = 768
    multiple: int = 1
    """Their number is a multiple of this."""


class Frames(_Recipe, frozen=True):
    """Some frames of a video, each as a picture."""

    picture: Whole | Fixed
    sampling: Sampling
    moment: int = 1
    """Frames that are one moment to the model; the last one is repeated to fill its own."""
    bounds_all: bool = False
    """Whether the picture's bounds of pixels are those of all frames together."""
    most_of_all: int | None = None
    """Pixels of all frames together, of which each may have its even share, or a little more than the least."""
    most_of_each: int | None = None
    """Pixels of each frame where the bounds are those of all."""


Recipe = Fixed | Whole | Bounded | Tiles | Split | Anyres | Sheet | Crops | Square | Frames


class Limits(msgspec.Struct, frozen=True):
    """What one piece of media may be."""

    pixels: int
    """Of an image, or of all frames that are read of a video."""
    frames: int = 128
    """Of a video that are read; what would read more reads fewer of them."""
    seconds: float = 3600.0


class Job(msgspec.Struct, frozen=True):
    """One piece of media for the process that decodes."""

    data: bytes
    recipe: Recipe
    limits: Limits


class Cooked(msgspec.Struct, frozen=True):
    """What it answers: pictures of one size."""

    data: bytes
    shape: tuple[int, int, int, int]
    size: tuple[int, int]
    """Height and width as it came."""
    tiles: tuple[int, int] = (1, 1)
    seconds: float = 0.0
    """Of a video: from one moment to the next."""
    times: tuple[float, ...] = ()
    """Of a video: seconds at which its pictures stand."""


class Spoiled(msgspec.Struct, frozen=True):
    """Why there is nothing."""

    message: str
