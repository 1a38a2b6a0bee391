"""Onto which sheet of tiles Llama 4 lays a picture, and how large. No torch.

The checkpoints' own code computes in float32 where a number comes from a sheet, and in float64 where it does not; what
is rounded down after that depends on it, so it is done the same way here.
"""

import math

import numpy as np

Size = tuple[int, int]
"""Height and width."""


def best_sheet(size: Size, tile: int, most: int, *, enlarges: bool) -> Size:
    """Rows and columns of tiles, `most` together: the sheet that takes a picture with the least enlarging, or if it
    fits on none with the least shrinking; of several the smallest. `enlarges`: with the most enlarging."""
    sheets = _sheets(most)
    height, width = (np.array(sheets, dtype=np.float32) * tile / np.array(size, dtype=np.float32)).T
    scales = np.minimum(height, width)
    fitting = scales[scales >= 1]
    least_changed = scales.max() if enlarges or not len(fitting) else fitting.min()
    return min((sheet for sheet, its in zip(sheets, scales, strict=True) if its == least_changed), key=math.prod)


def size_on_sheet(size: Size, sheet: Size, most_grown: int | None) -> Size:
    """Of a picture in its own shape on a sheet of so many pixels; it grows to `most_grown` at most, if given."""
    height, width = (
        np.float32(side) if most_grown is None or side < max(own, most_grown) else float(max(own, most_grown))
        for own, side in zip(size, sheet, strict=True)
    )
    down, across = height / size[0], width / size[1]
    if across < down:
        return max(1, min(math.floor(size[0] * across), int(height))), int(width)
    return int(height), max(1, min(math.floor(size[1] * down), int(width)))


def _sheets(most: int) -> list[Size]:
    """All, those of one shape together."""
    by_shape: dict[float, list[Size]] = {}
    for count in range(most, 0, -1):
        for rows in range(1, count + 1):
            if count % rows == 0:
                by_shape.setdefault(rows / (count // rows), []).append((rows, count // rows))
    return [sheet for alike in by_shape.values() for sheet in alike]
