"""Which tiles a grouped GEMM of experts is computed in. They follow from how many rows an expert has; none is measured
yet."""

from dataclasses import dataclass
from functools import cache

from quire.ops.triton.card import MEASURED_MEMORY, Card


@dataclass(frozen=True, slots=True)
class Tile:
    """A program's rows of one expert, its outputs, and the inputs it reads at a time."""

    block_rows: int
    block_out: int
    block_in: int
    num_warps: int
    num_stages: int


_TILES = (
    Tile(16, 64, 128, num_warps=4, num_stages=4),
    Tile(32, 64, 128, num_warps=4, num_stages=4),
    Tile(64, 128, 64, num_warps=4, num_stages=4),
    Tile(128, 128, 64, num_warps=8, num_stages=3),
)
"""By rows. Of gate and up together a program has twice the outputs."""
_IN_32_BITS = Tile(16, 32, 32, num_warps=4, num_stages=2)
_ABOVE_AVERAGE = 1.5
"""How many times the rows of an average expert most experts have at most."""
_FOR_LESS_MEMORY = 2
"""Stages on cards with less shared memory than an H200."""


@cache
def choose_tile(card: Card, pairs: int, experts: int, itemsize: int) -> Tile:
    """The smallest that holds the rows of most experts, or the largest."""
    if itemsize > 2:
        return _IN_32_BITS
    # an expert whose rows fill more than one tile is read again
    rows = _ABOVE_AVERAGE * pairs / experts
    tile = next((tile for tile in _TILES if rows <= tile.block_rows), _TILES[-1])
    if card.shared_memory < MEASURED_MEMORY:
        return Tile(tile.block_rows, tile.block_out, 64, tile.num_warps, _FOR_LESS_MEMORY)
    return tile
