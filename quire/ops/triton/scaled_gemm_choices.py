"""How a GEMM of 8-bit numbers with many rows is cut into tiles. Asks no device."""

from dataclasses import dataclass

from quire.ops.triton.card import Card

BLOCK_IN = 128
"""Inputs of one turn: a row of a tile is then as long as what a copy of tensors is best at."""


@dataclass(frozen=True, slots=True)
class Tile:
    block_rows: int
    block_out: int
    num_warps: int
    num_stages: int
    share: float
    """Of what the largest tile computes in a time, by the bytes that must be loaded for each operation."""


TILES = (Tile(128, 256, 8, 4, 1.0), Tile(128, 128, 8, 4, 0.8), Tile(64, 128, 4, 5, 0.55), Tile(64, 64, 4, 6, 0.35))


def choose_tile(card: Card, rows: int, out_size: int, *, in_groups: bool) -> Tile:
    """The tiles that end first: large ones are faster, small ones leave fewer multiprocessors without work at the end.

    Sums of groups and those of the row are held beside each other, for which the largest has no registers.
    """

    def turns(tile: Tile) -> float:
        blocks = -(-rows // tile.block_rows) * -(-out_size // tile.block_out)
        return -(-blocks // card.multiprocessors) * tile.block_rows * tile.block_out / tile.share

    tiles = TILES[1:] if in_groups else TILES
    fitting = [tile for tile in tiles if shared_memory(tile) <= card.shared_memory]
    return min(fitting or [tiles[-1]], key=turns)


def shared_memory(tile: Tile) -> int:
    return tile.num_stages * (tile.block_rows + tile.block_out) * BLOCK_IN
