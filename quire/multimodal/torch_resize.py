"""Resizing a picture as torch does it with bytes: the bilinear filter in weights of 16 bits, columns before rows.

Processors that `transformers` has for torchvision alone resize so. Pillow's filter is the same with weights of more
bits: one number in a hundred differs by 1.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WEIGHT_BITS = 15
_MOST_PRECISION = 22


@dataclass(frozen=True, slots=True)
class _Taps:
    """For each place of a resized axis, where it looks and how much each counts; [taps, places]."""

    sources: NDArray[np.int64]
    weights: NDArray[np.int32]
    precision: int
    """Weights are shares of 2 to this power."""


def resized_as_torch(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """[height, width, channels] in another height and width."""
    for axis in (1, 0):
        if pixels.shape[axis] != size[axis]:
            pixels = _resized(pixels, axis, _taps(pixels.shape[axis], size[axis]))
    return pixels


def _taps(given: int, wanted: int) -> _Taps:
    scale = given / wanted
    reach, steepness = max(scale, 1.0), 1 / max(scale, 1.0)
    centers = scale * (np.arange(wanted) + 0.5)
    first = np.maximum((centers - reach + 0.5).astype(np.int64), 0)
    counts = np.minimum((centers + reach + 0.5).astype(np.int64), given) - first
    steps = np.arange(int(counts.max()))[:, None]
    shares = np.maximum(1 - np.abs((steps + first - centers + 0.5) * steepness), 0)
    shares = np.where(steps < counts, shares, 0)
    shares /= shares.sum(0)
    # the finest that leaves the largest weight its 16 bits
    finest = math.floor(math.log2(((1 << _WEIGHT_BITS) - 0.5) / shares.max()))
    while int(0.5 + shares.max() * (1 << finest)) >= 1 << _WEIGHT_BITS:
        finest -= 1
    precision = min(finest, _MOST_PRECISION)
    weights = (shares * (1 << precision) + 0.5).astype(np.int32)
    return _Taps(np.minimum(first + steps, given - 1), weights, precision)


def _resized(pixels: NDArray[np.uint8], axis: int, taps: _Taps) -> NDArray[np.uint8]:
    """Sums of whole numbers, so the same on every machine."""
    shape = tuple(taps.sources.shape[1] if place == axis else side for place, side in enumerate(pixels.shape))
    total = np.full(shape, 1 << (taps.precision - 1), dtype=np.int32)
    along = [1, 1, 1]
    along[axis] = -1
    for sources, weights in zip(taps.sources, taps.weights, strict=True):
        total += pixels.take(sources, axis=axis) * weights.reshape(along)
    return (total >> taps.precision).clip(0, 255).astype(np.uint8)
