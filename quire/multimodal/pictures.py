"""Decoding and resizing pictures as transformers' processors do. Runs in the process that strangers' files are for."""

import io
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, WebPImagePlugin  # noqa: F401 - its reader registers itself

from quire.multimodal.anyres import best_resolution
from quire.multimodal.recipes import (
    Anyres,
    Bounded,
    Cooked,
    Crops,
    Fixed,
    Job,
    Limits,
    Recipe,
    Sheet,
    Split,
    Square,
    Tiles,
    Whole,
)
from quire.multimodal.settings import BILINEAR
from quire.multimodal.sheets import best_sheet, size_on_sheet
from quire.multimodal.torch_resize import resized_as_torch

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Those whose readers take nothing but pixels out of a file."""
_MOST_RATIO = 200
_LONGEST_SIDE = 4096
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
    check_shape(image.height, image.width)
    size = whole_size(image.height, image.width, recipe.factor, recipe.min_pixels, recipe.max_pixels)
    return as_array(resized(image, size, recipe.filter))[None], (1, 1)


def check_shape(height: int, width: int) -> None:
    """Raises BadMedia where one side is out of all proportion to the other."""
    if max(height, width) > _MOST_RATIO * min(height, width):
        raise BadMedia(f"it is {width:,} × {height:,} pixels; one side may be {_MOST_RATIO} times the other at most")


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


def _bounded(image: Image.Image, recipe: Bounded) -> tuple[Pictures, tuple[int, int]]:
    height, width = image.height, image.width
    ratio = max(height, width) / recipe.longest
    if ratio > 1:
        height, width = math.floor(height / ratio), math.floor(width / ratio)
    size = tuple(((side - 1) // recipe.patch + 1) * recipe.patch for side in (height, width))
    if min(size) < 1:
        raise BadMedia(f"it is {image.width:,} × {image.height:,} pixels, of which nothing would be left when shrunk")
    return as_array(resized(image, (size[0], size[1]), recipe.filter))[None], (1, 1)


def _tiles(image: Image.Image, recipe: Tiles) -> tuple[Pictures, tuple[int, int]]:
    height, width = recipe.size
    columns, rows = _arrangement(image, recipe)
    tiles = _cut(as_array(resized(image, (rows * height, columns * width), recipe.filter)), rows, columns)
    if len(tiles) > 1:
        tiles.append(as_array(resized(image, recipe.size, recipe.filter)))
    return np.stack(tiles), (rows, columns)


def _arrangement(image: Image.Image, recipe: Tiles) -> tuple[int, int]:
    """Columns and rows whose shape is nearest to the picture's; of several, the largest that it fills by half."""
    counts = range(1, recipe.most + 1)
    allowed = [(across, down) for across in counts for down in counts if recipe.least <= across * down <= recipe.most]
    best, least = (1, 1), math.inf
    for across, down in sorted(allowed, key=math.prod):
        apart = abs(image.width / image.height - across / down)
        is_filled = image.width * image.height > 0.5 * math.prod(recipe.size) * across * down
        if apart < least or (apart == least and is_filled):
            best, least = (across, down), apart
    return best


def _anyres(image: Image.Image, recipe: Anyres) -> tuple[Pictures, tuple[int, int]]:
    best = best_resolution((image.height, image.width), recipe.resolutions)
    if best is None:
        raise BadMedia(f"it is {image.width:,} × {image.height:,} pixels, of which nothing would be left when shrunk")
    down, across = best[0] / image.height, best[1] / image.width
    if across < down:
        size = (min(math.ceil(image.height * across), best[0]), best[1])
    else:
        size = (best[0], min(math.ceil(image.width * down), best[1]))
    whole = Image.new("RGB", (best[1], best[0]))
    whole.paste(resized(image, size, recipe.filter), ((best[1] - size[1]) // 2, (best[0] - size[0]) // 2))
    rows, columns = best[0] // recipe.tile[0], best[1] // recipe.tile[1]
    tiles = _cut(as_array(whole), rows, columns)
    return np.stack([as_array(resized(image, recipe.tile, recipe.filter)), *tiles]), (rows, columns)


def _sheet(image: Image.Image, recipe: Sheet) -> tuple[Pictures, tuple[int, int]]:
    size, tile = (image.height, image.width), recipe.tile
    rows, columns = best_sheet(size, tile, recipe.most, enlarges=recipe.enlarges)
    height, width = size_on_sheet(size, (rows * tile, columns * tile), None if recipe.enlarges else tile)
    whole = np.zeros((rows * tile, columns * tile, 3), dtype=np.uint8)
    pixels = as_array(image)
    whole[:height, :width] = resized_as_torch(pixels, (height, width))
    tiles = _cut(whole, rows, columns)
    if len(tiles) > 1:
        tiles.append(resized_as_torch(pixels, (tile, tile)))
    return np.stack(tiles), (rows, columns)


def _crops(image: Image.Image, recipe: Crops) -> tuple[Pictures, tuple[int, int]]:
    """What stands is laid down meanwhile: Pillow rounds between columns and rows, so which come first matters."""
    stands = image.width < image.height
    laid = image.transpose(Image.Transpose.TRANSPOSE) if stands else image
    shape = laid.width / laid.height
    width = recipe.side * _crops_across(shape, recipe.most)
    height = int(width / shape)
    if height < 1:
        raise BadMedia(f"it is {image.width:,} × {image.height:,} pixels, of which nothing would be left when shrunk")
    full = math.ceil(height / recipe.side) * recipe.side
    whole = Image.new("RGB", (width, full), "white")
    whole.paste(resized(laid, (height, width), BILINEAR), (0, (full - height) // 2))
    if stands:
        whole = whole.transpose(Image.Transpose.TRANSPOSE)
    rows, columns = whole.height // recipe.side, whole.width // recipe.side
    return np.stack(_cut(as_array(whole), rows, columns)), (rows, columns)


def _crops_across(shape: float, most: int) -> int:
    """The most along the width of a picture whose width is `shape` times its height."""
    count = 1
    while (count + 1) * math.ceil((count + 1) / shape) <= most:
        count += 1
    return count


def _square(image: Image.Image, recipe: Square) -> tuple[Pictures, tuple[int, int]]:
    side = max(image.size)
    whole = Image.new("RGB", (side, side), recipe.color)
    whole.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return as_array(resized(whole, recipe.size, recipe.filter))[None], (0, 0)


def _split(image: Image.Image, recipe: Split) -> tuple[Pictures, tuple[int, int]]:
    image = resized(image, _by_longer_side(image, recipe.longest), recipe.filter)
    square = (recipe.tile, recipe.tile)
    if not recipe.splits:
        return as_array(resized(image, square, recipe.filter))[None], (0, 0)
    shape, tile = image.width / image.height, recipe.tile
    if image.width >= image.height:
        width = math.ceil(image.width / tile) * tile
        height = math.ceil(int(width / shape) / tile) * tile
    else:
        height = math.ceil(image.height / tile) * tile
        width = math.ceil(int(height * shape) / tile) * tile
    image = resized(image, (height, width), recipe.filter)
    rows, columns = height // tile, width // tile
    if rows * columns == 1:
        return as_array(image)[None], (0, 0)
    tiles = _cut(as_array(image), rows, columns)
    return np.stack([*tiles, as_array(resized(image, square, recipe.filter))]), (rows, columns)


def _by_longer_side(image: Image.Image, longer: int) -> tuple[int, int]:
    """The other side even; neither beyond what the checkpoints' own code allows."""
    shape = image.width / image.height
    if image.width >= image.height:
        height, width = int(longer / shape), longer
        height += height % 2
    else:
        height, width = longer, int(longer * shape)
        width += width % 2
    height, width = max(height, 1), max(width, 1)
    shape = width / height
    if width >= height and width > _LONGEST_SIDE:
        height, width = int(_LONGEST_SIDE / shape), _LONGEST_SIDE
    elif height > width and height > _LONGEST_SIDE:
        height, width = _LONGEST_SIDE, int(_LONGEST_SIDE * shape)
    return max(height, 1), max(width, 1)


def _cut(pixels: Pictures, rows: int, columns: int) -> list[Pictures]:
    """Tiles of one size, row by row."""
    return [tile for row in np.split(pixels, rows) for tile in np.split(row, columns, axis=1)]


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


_COOKS: dict[type, Callable[..., tuple[Pictures, tuple[int, int]]]] = {
    Fixed: _fixed,
    Whole: _whole,
    Bounded: _bounded,
    Tiles: _tiles,
    Split: _split,
    Anyres: _anyres,
    Sheet: _sheet,
    Crops: _crops,
    Square: _square,
}
