"""Positions of a prompt with media, for models that give them three axes: time, height and width. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quire.core.media import MediaItem

Axes = tuple[list[int], list[int], list[int]]


@dataclass(frozen=True, slots=True)
class PositionRule:
    """How one model places media."""

    side: int
    """Pixels that an embedding has a side."""
    per_second: float | None = None
    """Positions that a second of a video takes; None: a moment takes one, however long it lasts."""


def prompt_positions(num_tokens: int, media: Sequence[MediaItem], rule: PositionRule) -> tuple[Axes, int]:
    """The positions of a prompt's tokens on each axis, and what is to be added to the places of all later tokens.

    Text counts on all axes at once. An image stands at one moment and spreads over rows and columns from there; text
    goes on behind its last row or column. A video is one moment after the other, in one run of tokens, or each in a run
    of its own with text between them.
    """
    axes: Axes = ([], [], [])
    following = 0
    for item in media:
        assert item.pixels is not None, "an item of pictures"
        rows, columns = item.pixels.shape[1] // rule.side, item.pixels.shape[2] // rule.side
        for first, count in item.runs:
            following = _text(axes, first, following)
            for moment in range(count // (rows * columns)):
                _picture(axes, following, following + _later(moment, item, rule), rows, columns)
            following += max(rows, columns)
    _text(axes, num_tokens, following)
    return axes, max(max(axis) for axis in axes) + 1 - num_tokens


def _later(moment: int, item: MediaItem, rule: PositionRule) -> int:
    """Positions from a video's first moment to this one; in float32, as the checkpoints' own code rounds down there."""
    if rule.per_second is None or item.kind == "image":
        return moment
    return int(np.float32(moment) * (np.float32(rule.per_second) * np.float32(item.seconds)))


def _text(axes: Axes, end: int, following: int) -> int:
    """Fill up to `end` with text whose first position is `following`."""
    missing = end - len(axes[0])
    for axis in axes:
        axis.extend(range(following, following + missing))
    return following + missing


def _picture(axes: Axes, following: int, time: int, rows: int, columns: int) -> None:
    for row in range(rows):
        axes[0].extend([time] * columns)
        axes[1].extend([following + row] * columns)
        axes[2].extend(range(following, following + columns))
