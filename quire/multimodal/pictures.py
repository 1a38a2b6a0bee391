"""Decoding and resizing pictures as transformers' processors do. Runs in the process that strangers' files are for."""

import io
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, WebPImagePlugin  # noqa: F401 - its reader registers itself

from quire.multimodal.recipes import Cooked, Fixed, Job, Limits, Recipe, Whole

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Those whose readers take nothing but pixels out of a file."""
_MOST_RATIO = 200
Pictures = NDArray[np.uint8]


class BadMedia(Exception):
    """What is wrong with a file, for whoever sent it."""


def cook(job: Job) -> Cooked:
    """Raises BadMedia."""
    image = decode(job.data, job.limits)
    size = (image.height, image.width)
    pictures, tiles = prepare(image, job.recipe)
    return Cooked(pictures.tobytes(), pictures.shape, size, tiles)


def decode(data: bytes, limits: Limits) -> Image.Image:
    """The first picture of a file, upright and in RGB."""
    Image.MAX_IMAGE_PIXELS = None  # the bound below holds, and says more
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = image.size
        if width * height > limits.pixels:
            raise BadMedia(f"it has {width:,} × {height:,} pixels; {limits.pixels:,} are the most")
        upright = ImageOps.exif_transpose(image)
        return (upright or image).convert("RGB")
    except UnidentifiedImageError:
        raise BadMedia(f"it is no image that quire reads; send one of {', '.join(FORMATS)}") from None
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        OverflowError,
        MemoryError,
        ArithmeticError,
        LookupError,
    ) as error:
        raise BadMedia(f"it cannot be decoded: {str(error)[:200] or type(error).__name__}") from None


def prepare(image: Image.Image, recipe: Recipe) -> tuple[Pictures, tuple[int, int]]:
    """Pictures of one size, uint8 [count, height, width, 3], and how they lie as tiles."""
    return _COOKS[type(recipe)](image, recipe)


def _fixed(image: Image.Image, recipe: Fixed) -> tuple[Pictures, tuple[int, int]]:
    if isinstance(recipe.resize, int):
        image = resized(image, _by_shorter_side(image, recipe.resize), recipe.filter)
    elif recipe.resize is not None:
        image = resized(image, recipe.resize, recipe.filter)
    pixels = as_array(image)
    return (pixels if recipe.crop is None else _center(pixels, recipe.crop))[None], (1, 1)


def _whole(image: Image.Image, recipe: Whole) -> tuple[Pictures, tuple[int, int]]:
    sides = (image.height, image.width)
    if max(sides) > _MOST_RATIO * min(sides):
        raise BadMedia(
            f"it is {sides[1]:,} × {sides[0]:,} pixels; one side may be {_MOST_RATIO} times the other at most"
        )
    size = whole_size(*sides, recipe.factor, recipe.min_pixels, recipe.max_pixels)
    return as_array(resized(image, size, recipe.filter))[None], (1, 1)


def whole_size(height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """The nearest size of the same shape whose sides are multiples of `factor` and whose pixels are within bounds."""
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > most:
        shrink = math.sqrt(height * width / most)
        return tuple(max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width))  # type: ignore[return-value]
    if rows * columns < least:
        grow = math.sqrt(least / (height * width))
        return tuple(math.ceil(side * grow / factor) * factor for side in (height, width))  # type: ignore[return-value]
    return rows, columns


def resized(image: Image.Image, size: tuple[int, int], kind: int) -> Image.Image:
    """To a height and a width."""
    return image.resize((size[1], size[0]), resample=Image.Resampling(kind))


def as_array(image: Image.Image) -> Pictures:
    return np.asarray(image, dtype=np.uint8)


def _by_shorter_side(image: Image.Image, shorter: int) -> tuple[int, int]:
    short, long = sorted((image.height, image.width))
    longer = int(shorter * long / short)
    return (shorter, longer) if image.height <= image.width else (longer, shorter)


def _center(pixels: Pictures, size: tuple[int, int]) -> Pictures:
    """Cut out of the middle; what is too small gets a black border."""
    for axis, wanted in enumerate(size):
        given = pixels.shape[axis]
        missing = max(0, wanted - given)
        if missing:
            before = math.ceil(missing / 2)
            border = [(0, 0)] * 3
            border[axis] = (before, missing - before)
            pixels = np.pad(pixels, border)
        else:
            first = (given - wanted) // 2
            pixels = np.take(pixels, range(first, first + wanted), axis=axis)
    return np.ascontiguousarray(pixels)


_COOKS: dict[type, Callable[..., tuple[Pictures, tuple[int, int]]]] = {Fixed: _fixed, Whole: _whole}
