"""How the native core lays out matrices, and what a packed one must be to stand for another. No torch."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from quire.ops.cpu import _core

Q4, Q8, F32, F16, BF16, MXFP4 = range(6)
"""Layouts, as csrc/layouts.hpp numbers them."""

PANEL = 16
"""Rows of a matrix that the core computes together."""

FLOATS = {"float32": (F32, 4), "float16": (F16, 5), "bfloat16": (BF16, 6)}
EXACT = {"Q4_0": (Q4, 0), "Q4_1": (Q4, 1), "Q4_K": (Q4, 2), "Q8_0": (Q8, 3), "MXFP4": (MXFP4, 7)}
"""Packed types that a layout holds as they are. All others go through floats to 8 bits, which are finer than theirs.
Both: layout and source, by kind."""
IN_FLOATS = frozenset(layout for layout, _ in FLOATS.values())
"""Layouts of plain numbers; activations meet all others in bytes."""
MULTIPLIED = {"int4": (Q4, 1), "int8": (Q8, 3)}
"""Blocks as Q4_1 and Q8_0 have them, whose scales are multiplied already, as float16 would not hold them well."""
IN_8_BITS = "float32 in 8 bits"
"""Floats that are to be rounded to 8 bits."""


class MatrixForm(msgspec.Struct, frozen=True):
    """What a packed matrix must be to stand for another: the bytes are the same where this and the name are."""

    layout: int
    rows: int
    columns: int
    size: int
    """Bytes."""
    kinds: tuple[str, ...]
    """The types it was packed from, one for each part."""


def layout_of(kind: str) -> int:
    """The layout that holds tensors of a type."""
    return (FLOATS.get(kind) or EXACT.get(kind) or MULTIPLIED.get(kind) or (Q8, 0))[0]


def is_converted(kind: str) -> bool:
    """Whether scales are multiplied on packing, as float16 would not hold them well otherwise."""
    return kind not in FLOATS and kind not in EXACT


def core_matrix(form: MatrixForm, data: int, bias: int) -> "_core.Matrix":
    """The matrix whose packed bytes are at address `data`; 0 as the address of its bias is none."""
    from quire.ops.cpu import _core

    factor = 1 / _core.float_scale if is_converted(form.kinds[0]) else 1.0
    if form.layout == MXFP4:
        factor = 0.5  # its codes stand for twice what they are worth, which makes them whole numbers
    return _core.Matrix(form.layout, data, form.rows, form.columns, factor, bias)
