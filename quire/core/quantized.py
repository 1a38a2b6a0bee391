"""The words of quantization: which codes stand for weights, and how activations are quantized to meet them."""

from typing import Literal

Codes = (
    Literal["fp8_e4m3", "fp8_e5m2"]
    | Literal["int8", "int6", "int5", "int4", "int3", "int2"]
    | Literal["nf4", "iq4", "iq3_xxs", "iq3_s", "iq2", "fp4"]
)
"""What one stored number means: a small float, a whole number, or a place in a table of 8 or 16 values: NF4's, those of
ggml's IQ types, or the floats of four bits (E2M1) that MXFP4 has.
"""

Activations = Literal["as they are", "a scale each token", "a scale each group", "one scale"]
"""How x is quantized before it is multiplied: not, by its own largest value, or by the checkpoint's scale."""

PLANES: dict[Codes, tuple[int, int]] = {
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "int8"), (8, 0)),
    "int6": (4, 2),
    "int5": (4, 1),
    **dict.fromkeys(("int4", "nf4", "iq4", "iq3_xxs", "iq3_s", "fp4"), (4, 0)),
    **dict.fromkeys(("int3", "iq2"), (2, 1)),
    "int2": (2, 0),
}
"""Bits of a code that lie in a matrix's `values`, and those above them, which lie in `high`."""

_RUN = 8
"""Neighbouring places that a thread of a kernel loads at once."""


def chunk_columns(group: int, columns: int) -> int:
    """The most columns, 128 at the most, that divide the row, and a group or are twice as many.

    Groups of 16 are two a chunk: four places with their bits above fill a word of each plane.
    """
    sizes = (128, 64, 32, 16, 8, 4, 2)
    return next(size for size in sizes if columns % size == 0 and (group % size == 0 or (size, group) == (32, 16)))


def multiplies_experts(codes: Codes, group: int, columns: int) -> bool:
    """Whether kernels of GPUs multiply by experts in such codes as they are packed; others are expanded when they are
    loaded. A thread's run has to lie in one group, and what a program reads at a time in one group or in whole ones.
    """
    low_bits, high_bits = PLANES[codes]
    halves = 1 if low_bits == 8 else 2
    if columns % 16 or group % (_RUN * halves):
        return False
    least = 1 if halves == 1 else 32 if high_bits else 16
    in_blocks = group >= columns or group & (group - 1) == 0
    return in_blocks and (halves == 1 or chunk_columns(group, columns) >= least)
