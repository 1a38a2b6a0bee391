"""How a skinny GEMM with a QuantizedMatrix is cut into programs: as measured for its card and shape, else by a formula.

With codes of 8 bits such a GEMM takes as long as its codes take to arrive. Those of 4 arrive almost as fast as CUDA
cores multiply them by one row (2 instructions a code, and an H200 at full bandwidth has time for 3.4), so tensor cores
have all but one and two rows.
"""

from dataclasses import dataclass, replace
from functools import cache

from quire.core.quantized import PLANES, Codes
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.card import Card
from quire.ops.triton.quantized_skinny_table import TABLES
from quire.ops.triton.skinny_gemm_choices import Choice, ceil_div, padded_rows, power_of_two_from

MOST_ROWS = 256
"""Above, operations set the pace: codes are expanded, or multiplied in 8 bits with quantized activations."""
MOST_ROWS_BESIDE_8_BITS = 64
"""Of matrices that can be multiplied in 8 bits."""
MOST_ROWS_ON_CUDA_CORES = 2
MOST_ROWS_OF_A_BLOCK = 128
THREAD_READS = 8
"""Places that a thread loads at once."""


@dataclass(frozen=True, slots=True)
class Form:
    """What the choice for a matrix depends on beside its shape."""

    codes: Codes
    group: int
    """0 where a row has one scale and that is all there is."""
    chunk: int
    halves: int
    in_8_bits: bool
    """Whether many rows are quantized and multiplied in 8 bits."""

    def __str__(self) -> str:
        """As tables name it."""
        return f"{self.codes} {self.group}" + (" in 8 bits" if self.in_8_bits else "")


def form_of(matrix: QuantizedMatrix, in_8_bits: bool) -> Form:
    one_scale = matrix.scales.shape[1] == 1 and matrix.zeros is None and matrix.mins is None
    halves = 1 if PLANES[matrix.codes][0] == 8 else 2
    return Form(matrix.codes, 0 if one_scale else matrix.group, matrix.chunk if halves == 2 else 1, halves, in_8_bits)


@cache
def choose(card: Card, form: Form, rows: int, out_size: int, in_size: int) -> Choice | None:
    """The way to multiply by codes as they are packed, or None where the way of many rows is better."""
    if not 1 <= rows <= MOST_ROWS:
        return None
    measured = TABLES.get(card.name, {}).get(str(form), {}).get((out_size, in_size), {})
    bound = min((bound for bound in measured if bound >= rows), default=None)
    if bound is not None:
        entry = measured[bound]
        return None if entry is None else Choice(*entry)
    if form.in_8_bits and rows > MOST_ROWS_BESIDE_8_BITS:
        return None
    if rows <= MOST_ROWS_ON_CUDA_CORES:
        return _on_cuda_cores(card, form, out_size, in_size)
    return fitting(card, form, _on_tensor_cores(card, rows, out_size, in_size), rows)


def _on_cuda_cores(card: Card, form: Form, out_size: int, in_size: int) -> Choice:
    """As many outputs a block as leave four programs a multiprocessor: x is loaded and summed once for all of them.

    Eight take too many registers where groups are small.
    """
    warp_reads = THREAD_READS * card.warp_size * form.halves
    num_warps = min(128 // card.warp_size, power_of_two_from(ceil_div(in_size, warp_reads)))
    sizes = (8, 4, 2) if form.halves == 2 and not 0 < form.group < 64 else (4, 2)
    block_out = next((size for size in sizes if ceil_div(out_size, size) >= 4 * card.multiprocessors), 1)
    return Choice("cuda", block_out, max(num_warps * warp_reads, form.chunk), 1, num_warps, num_stages=1)


def _on_tensor_cores(card: Card, rows: int, out_size: int, in_size: int) -> Choice:
    """Blocks of a warpgroup's instruction, taller for many rows, split until a multiprocessor has two programs."""
    block_out, num_warps = (64, 4) if rows <= 64 else (128, 8)
    programs = (2 if rows <= 64 else 1) * card.multiprocessors
    blocks = ceil_div(out_size, block_out) * ceil_div(rows, rows_of_a_block(rows))
    splits = max(1, min(round(programs / blocks), in_size // 512))
    return Choice("tensor", block_out, 128, splits, num_warps, num_stages=5)


def rows_of_a_block(rows: int) -> int:
    """How many rows of x a program on tensor cores multiplies; more have more programs."""
    return min(padded_rows(rows), MOST_ROWS_OF_A_BLOCK)


def fitting(card: Card, form: Form, wanted: Choice, rows: int) -> Choice | None:
    """With blocks that are whole chunks and whole groups or lie in one, and as many stages as there is memory for.

    None where there are no such blocks.
    """
    block_in = max(wanted.block_in, form.chunk, 32)
    while form.group and form.group % block_in and block_in % form.group:
        block_in //= 2
    if block_in < max(form.chunk, 16 * form.halves):
        return None
    block_rows = rows_of_a_block(rows)
    room = card.shared_memory // (2 if block_rows <= 64 else 1)
    expanded = 2 * wanted.block_out * block_in
    a_stage = block_in * (wanted.block_out // form.halves + 2 * block_rows)
    num_stages = max(1, min(wanted.num_stages, (room - expanded) // a_stage))
    return replace(wanted, block_in=block_in, num_stages=num_stages)
