"""Ways to cut a skinny GEMM that are worth a measurement, the most promising first. Asks no device."""

from collections.abc import Iterator
from itertools import product

from quire.ops.triton.card import Card
from quire.ops.triton.skinny_gemm_choices import Choice, ceil_div, choose, padded_rows, power_of_two_from

MOST_CANDIDATES = 24
"""Of one GEMM: more would not fit four minutes for all of them."""
CUDA_TILES = ((4, 1024), (2, 512), (8, 2048), (1, 512))
"""Warps, and the inputs they read at a time: 256 or 512 a warp."""
CUDA_TILES_OF_EIGHT_ROWS = CUDA_TILES[:2]
TENSOR_TILES = {
    16: (
        # for a warpgroup's instruction
        *((64, 128, 4, 4), (64, 128, 4, 6), (64, 256, 4, 4), (128, 128, 4, 4), (128, 64, 4, 6)),
        # for a warp's, where outputs are few
        *((32, 256, 2, 4), (16, 256, 1, 4), (16, 512, 2, 4)),
    ),
    32: ((64, 128, 4, 4), (128, 64, 4, 5), (64, 256, 4, 3), (64, 128, 4, 3), (64, 64, 4, 6), (128, 128, 8, 4)),
    64: ((64, 128, 4, 4), (128, 64, 8, 4), (64, 64, 4, 6), (64, 128, 4, 3), (128, 64, 4, 5), (128, 128, 8, 3)),
    128: ((64, 64, 4, 5), (128, 64, 8, 6), (64, 64, 4, 4), (128, 64, 8, 4), (64, 128, 4, 3), (128, 128, 8, 3)),
}
"""By the rows that are multiplied: outputs, inputs, warps and stages."""


def ways(card: Card, rows: int, out_size: int, in_size: int, tune: bool) -> list[Choice]:
    """The choice that ships, where there is one; when tuning, then all others."""
    shipped = choose(card, rows, out_size, in_size)
    first = [] if shipped is None else [shipped]
    others = candidates(card, rows, out_size, in_size) if tune else []
    return first + [choice for choice in others if choice != shipped]


def candidates(card: Card, rows: int, out_size: int, in_size: int) -> list[Choice]:
    on_cuda = list(_on_cuda_cores(card, rows, out_size, in_size)) if rows <= 8 else []
    on_tensor = list(dict.fromkeys(_on_tensor_cores(card, rows, out_size, in_size))) if rows > 2 else []
    mixed = on_cuda[:20] + on_tensor if rows <= 4 else on_tensor[:20] + on_cuda
    return mixed[:MOST_CANDIDATES]


def _on_cuda_cores(card: Card, rows: int, out_size: int, in_size: int) -> Iterator[Choice]:
    """Two outputs a block at least where they are many, since x is read once a block; 64 weights a thread at most."""
    tiles = CUDA_TILES if rows <= 4 else CUDA_TILES_OF_EIGHT_ROWS
    for block_out, (num_warps, block_in), num_stages in product((4, 2, 8, 1), tiles, (1, 3)):
        fits = block_in <= power_of_two_from(in_size) and block_out * block_in <= 64 * 32 * num_warps
        too_few = ceil_div(out_size, block_out) < card.multiprocessors
        if not fits or too_few or (block_out == 1 and out_size >= 4096):
            continue
        if num_stages > 1 and (in_size <= block_in or rows > 4):
            continue  # one turn has nothing to overlap; eight rows leave no registers for it
        yield Choice("cuda", block_out, block_in, 1, num_warps, num_stages)


def _on_tensor_cores(card: Card, rows: int, out_size: int, in_size: int) -> Iterator[Choice]:
    """Each tile with the splits that give a multiprocessor about one, two or four programs, of two turns at least."""
    tiles = TENSOR_TILES[padded_rows(rows)]
    for programs_each, (block_out, block_in, num_warps, num_stages) in product((1, 2, 4), tiles):
        wanted = round(programs_each * card.multiprocessors / ceil_div(out_size, block_out))
        splits = max(1, min(wanted, in_size // (2 * block_in)))
        yield Choice("tensor", block_out, block_in, splits, num_warps, num_stages)
