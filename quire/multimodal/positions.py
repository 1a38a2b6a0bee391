"""Positions of a prompt with images, for models that give them three axes: time, height and width. No torch."""

from collections.abc import Sequence

from quire.core.media import MediaItem

Axes = tuple[list[int], list[int], list[int]]


def prompt_positions(num_tokens: int, media: Sequence[MediaItem], side: int) -> tuple[Axes, int]:
    """The positions of a prompt's tokens on each axis, and what is to be added to the places of all later tokens.

    Text counts on all axes at once. An image stands at one moment and spreads over rows and columns from there, and the
    text behind it goes on from the largest number of all. `side` is how many pixels an embedding has a side.
    """
    axes: Axes = ([], [], [])
    following = 0
    for item in media:
        following = _text(axes, item.position, following)
        following = _picture(axes, item, following, side)
    following = _text(axes, num_tokens, following)
    return axes, following - num_tokens


def _text(axes: Axes, end: int, following: int) -> int:
    """Fill up to `end` with text whose first position is `following`."""
    missing = end - len(axes[0])
    for axis in axes:
        axis.extend(range(following, following + missing))
    return following + missing


def _picture(axes: Axes, item: MediaItem, following: int, side: int) -> int:
    assert item.pixels is not None, "an item of pictures"
    _, height, width, _ = item.pixels.shape
    rows, columns = height // side, width // side
    for row in range(rows):
        axes[0].extend([following] * columns)
        axes[1].extend([following + row] * columns)
        axes[2].extend(range(following, following + columns))
    return following + max(rows, columns)
