"""How a skinny GEMM (few rows) is cut into programs: as measured for its card and shape, else by a formula.

Such a GEMM takes as long as its weights take to arrive, so a choice is good when enough bytes are on their way at
any time: latency times bandwidth, about 0.8 µs × 4.5 TB/s = 3.6 MB on an H200, or 27 KB a multiprocessor; 12 KB on an
A100, 4 on an L4. Nothing here needs a device, and nothing knows the kernels beyond the meaning of a choice.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from quire.ops.triton.card import Card
from quire.ops.triton.skinny_gemm_table import TABLES

MOST_ROWS = 128
"""Above, GEMMs belong to cuBLAS: their operations begin to count beside their bytes."""
MOST_ROWS_BY_FORMULA = 32
"""Of shapes that nobody has measured: above, cuBLAS was ahead in half of 20 that were measured to check the formula."""
LEAST_TENSOR_ROWS = LEAST_BLOCK_IN = 16
"""Tensor cores multiply no fewer."""
MOST_ROWS_ON_CUDA_CORES = 8
"""At bandwidth, 8 rows take 60 % of the multiply-adds that CUDA cores can do; above, they would set the pace."""

THREAD_READS = 8
"""16-bit inputs that a thread loads at once."""
PROGRAMS = 2
"""On tensor cores, of a multiprocessor: they share its memory, so that one computes while the other waits."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to compute y = x Wᵀ. All sizes but `splits` and `num_stages` are powers of two."""

    cores: Literal["cuda", "tensor"]
    """CUDA cores multiply each row by itself; tensor cores take 16, 32, 64 or 128 rows, missing ones as zeros."""
    block_out: int
    """Outputs of one program."""
    block_in: int
    """Inputs that a program reads in one turn of its loop. On CUDA cores at least 8 a thread: then warps stand side by
    side along the inputs, each reads x once for all outputs of the block, and both loads have one layout."""
    splits: int
    """Programs that share the inputs of an output; above 1, a second kernel adds what they found."""
    num_warps: int
    num_stages: int
    """Turns of the loop whose loads are under way at once, through shared memory; 1 leaves that to many warps."""


@cache
def choose(card: Card, rows: int, out_size: int, in_size: int) -> Choice | None:
    """The way to compute a GEMM in 16-bit numbers, or None where cuBLAS does it better."""
    if not 1 <= rows <= MOST_ROWS:
        return None
    measured = TABLES.get(card.name, {}).get((out_size, in_size), {})
    bound = min((bound for bound in measured if bound >= rows), default=None)
    if bound is not None:
        entry = measured[bound]
        return None if entry is None else Choice(*entry)
    if in_size % 16 or rows > MOST_ROWS_BY_FORMULA:
        return None  # unaligned rows of weights cannot be loaded 16 bytes at a time
    if rows <= 4:
        return _on_cuda_cores(card, out_size, in_size)
    is_one_tile = rows <= LEAST_TENSOR_ROWS
    wanted = _on_tensor_cores(card, out_size, in_size) if is_one_tile else _of_32_rows(card, out_size, in_size)
    return fitting(card, wanted, padded_rows(rows))


def padded_rows(rows: int) -> int:
    """How many rows tensor cores multiply where there are so many."""
    return max(LEAST_TENSOR_ROWS, power_of_two_from(rows))


def _on_cuda_cores(card: Card, out_size: int, in_size: int) -> Choice:
    """Blocks of up to four outputs (x is loaded once for all of them), smaller where four programs a processor fail.

    Each thread then has up to 64 bytes on their way, a multiprocessor's four programs of four warps 32 KB.
    """
    warp_reads = THREAD_READS * card.warp_size
    num_warps = min(128 // card.warp_size, power_of_two_from(ceil_div(in_size, warp_reads)))
    block_in = num_warps * warp_reads
    enough = 4 * card.multiprocessors
    block_out = next((size for size in (4, 2) if ceil_div(out_size, size) >= enough), 1)
    splits = _splits_for(2 * card.multiprocessors, ceil_div(out_size, block_out), ceil_div(in_size, block_in))
    return Choice("cuda", block_out, block_in, splits, num_warps, num_stages=1)


def _on_tensor_cores(card: Card, out_size: int, in_size: int) -> Choice:
    """Blocks as tall as a warpgroup's instruction where outputs abound, else flatter ones; then splits.

    Two programs a multiprocessor with four stages of 16 KB have some 96 KB on their way, more than is needed: loads of
    a stage come in bursts, and the last program of a row of them runs alone. Where memory is short, they have fewer.
    """
    programs = PROGRAMS * card.multiprocessors
    if ceil_div(out_size, 64) >= programs:
        return Choice("tensor", block_out=64, block_in=128, splits=1, num_warps=4, num_stages=4)
    block_out = 32 if ceil_div(out_size, 32) >= card.multiprocessors // 2 else 16
    block_in = min(256, max(16, power_of_two_from(in_size)))
    # fewer than two turns a program would leave nothing to overlap
    splits = _splits_for(programs, ceil_div(out_size, block_out), ceil_div(in_size, 2 * block_in))
    return Choice("tensor", block_out, block_in, splits, num_warps=block_out // 16, num_stages=4)


def _of_32_rows(card: Card, out_size: int, in_size: int) -> Choice:
    """Blocks of a warpgroup's instruction, split until every multiprocessor has about one; taller ones where outputs
    abound, so that x is loaded less often.
    """
    if ceil_div(out_size, 128) >= card.multiprocessors:
        return Choice("tensor", 128, 64, splits=1, num_warps=4, num_stages=5)
    block_in = min(128, max(16, power_of_two_from(in_size)))
    wanted = round(card.multiprocessors / ceil_div(out_size, 64))
    return Choice("tensor", 64, block_in, max(1, min(wanted, in_size // (2 * block_in))), num_warps=4, num_stages=4)


def fitting(card: Card, wanted: Choice, rows: int) -> Choice:
    """With as many stages as `PROGRAMS` programs have memory for, and smaller ones where that is not even two."""
    room = card.shared_memory // PROGRAMS
    block_in, input_bytes = wanted.block_in, 2 * (wanted.block_out + rows)
    while block_in > LEAST_BLOCK_IN and 2 * block_in * input_bytes > room:
        block_in //= 2
    num_stages = max(1, min(wanted.num_stages, room // (block_in * input_bytes)))
    return replace(wanted, block_in=block_in, num_stages=num_stages)


def _splits_for(wanted_programs: int, blocks_of_outputs: int, most: int) -> int:
    """How often inputs must be split for so many programs; at most `most` times."""
    return max(1, min(ceil_div(wanted_programs, blocks_of_outputs), most))


def ceil_div(size: int, part: int) -> int:
    """How many parts cover a size."""
    return -(-size // part)


def power_of_two_from(size: int) -> int:
    """The smallest power of two that is no smaller than `size`, which is positive."""
    return 1 << (size - 1).bit_length()
