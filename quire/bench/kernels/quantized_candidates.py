"""Ways to cut a skinny GEMM with a quantized matrix that are worth a measurement. Asks no device."""

from collections.abc import Iterator
from itertools import product

from quire.ops.triton.card import Card
from quire.ops.triton.quantized_skinny_choices import THREAD_READS, Form, choose, fitting, rows_of_a_block
from quire.ops.triton.skinny_gemm_choices import Choice, ceil_div, power_of_two_from

CUDA_ROWS = 4
CUDA_BLOCKS = ((8, 4), (4, 4), (8, 2), (4, 2), (4, 1), (2, 4), (8, 8))
"""Outputs and warps."""
TENSOR_TILES = {
    16: ((64, 128, 4, 5), (64, 256, 4, 4), (128, 128, 4, 4), (128, 256, 8, 4), (16, 256, 1, 4)),
    32: ((64, 128, 4, 4), (128, 128, 8, 4), (64, 256, 4, 3), (128, 128, 4, 3)),
    64: ((64, 128, 4, 4), (128, 128, 8, 4), (128, 128, 4, 3), (64, 128, 4, 3)),
    128: ((128, 128, 8, 3), (64, 128, 4, 3), (128, 128, 8, 4), (128, 128, 4, 3)),
}
"""By the rows of a block: outputs, inputs, warps and stages."""


def ways(card: Card, form: Form, rows: int, out_size: int, in_size: int, tune: bool) -> list[Choice]:
    """The choice that ships, where there is one; when tuning, then all others."""
    shipped = choose(card, form, rows, out_size, in_size)
    first = [] if shipped is None else [shipped]
    others = candidates(card, form, rows, out_size, in_size) if tune else []
    return list(dict.fromkeys(first + others))


def candidates(card: Card, form: Form, rows: int, out_size: int, in_size: int) -> list[Choice]:
    on_cuda = list(_on_cuda_cores(card, form, out_size, in_size)) if rows <= CUDA_ROWS else []
    on_tensor = list(_on_tensor_cores(card, form, rows, out_size, in_size))
    return list(dict.fromkeys(on_cuda + on_tensor))


def _on_cuda_cores(card: Card, form: Form, out_size: int, in_size: int) -> Iterator[Choice]:
    for block_out, num_warps in CUDA_BLOCKS:
        block_in = form.halves * THREAD_READS * card.warp_size * num_warps
        if block_in <= power_of_two_from(in_size) and ceil_div(out_size, block_out) >= card.multiprocessors:
            yield Choice("cuda", block_out, block_in, 1, num_warps, 1)


def _on_tensor_cores(card: Card, form: Form, rows: int, out_size: int, in_size: int) -> Iterator[Choice]:
    """Each tile with the splits that give a multiprocessor about one, two or four programs, of two turns at least."""
    row_blocks = ceil_div(rows, rows_of_a_block(rows))
    for programs_each, tile in product((1, 2, 4), TENSOR_TILES[rows_of_a_block(rows)]):
        block_out, block_in, num_warps, num_stages = tile
        wanted = round(programs_each * card.multiprocessors / (ceil_div(out_size, block_out) * row_blocks))
        splits = max(1, min(wanted, in_size // (2 * block_in)))
        choice = fitting(card, form, Choice("tensor", block_out, block_in, splits, num_warps, num_stages), rows)
        if choice is not None:
            yield choice
