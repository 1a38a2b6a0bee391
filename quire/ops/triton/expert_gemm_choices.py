"""Which tiles a grouped GEMM of experts is computed in. They follow from how many rows an expert has.

Measured on an H200 with the experts of Qwen3-30B-A3B and DeepSeek-V2-Lite: up to 256 tokens weights are read at 4.0 to
4.4 TB/s, 8,192 tokens multiply at 480 to 580 TFLOP/s.
"""

from dataclasses import dataclass
from functools import cache

from quire.ops.triton.card import MEASURED_MEMORY, Card


@dataclass(frozen=True, slots=True)
class Strip:
    """A program's outputs, the inputs it reads at a time, and how."""

    block_out: int
    block_in: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A program's rows of one expert, and its outputs of either GEMM."""

    block_rows: int
    up: Strip
    """Of gates and ups, so that a program has twice the outputs."""
    down: Strip


_TILES = (
    Tile(16, Strip(32, 128, num_warps=4, num_stages=4), Strip(128, 128, num_warps=4, num_stages=3)),
    Tile(32, Strip(64, 128, num_warps=4, num_stages=3), Strip(128, 128, num_warps=4, num_stages=3)),
    Tile(64, Strip(128, 64, num_warps=4, num_stages=4), Strip(128, 64, num_warps=4, num_stages=3)),
    Tile(128, Strip(128, 64, num_warps=8, num_stages=4), Strip(256, 64, num_warps=8, num_stages=4)),
)
"""By rows."""
_IN_32_BITS = Tile(16, Strip(32, 32, num_warps=4, num_stages=2), Strip(32, 32, num_warps=4, num_stages=2))
_ABOVE_AVERAGE = 1.25
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
        return Tile(tile.block_rows, _smaller(tile.up), _smaller(tile.down))
    return tile


def packed_strip(strip: Strip) -> Strip:
    """For experts in codes, which programs make numbers of in registers: fewer outputs, and 128 columns at a time,
    which hold whole chunks. Not measured yet."""
    return Strip(min(strip.block_out, 64), 128, num_warps=4, num_stages=min(strip.num_stages, 3))


def _smaller(strip: Strip) -> Strip:
    return Strip(min(strip.block_out, 128), 64, strip.num_warps, _FOR_LESS_MEMORY)
