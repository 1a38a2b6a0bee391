"""QuantizedMatrix: a matrix in 8 or 4 bits with a scale for each row and group of columns, as ops multiply by it."""

from dataclasses import dataclass

from torch import Tensor

from quire.core.quantized import Activations, Codes

__all__ = ["Activations", "Codes", "QuantizedMatrix", "chunk_columns"]


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """[rows, columns]: element (r, c) is (code - zero) * scale, with the zero and scale of row r and c's group.

    A scale of a whole tensor or of a block of rows is held once for each of its rows, so that the parts of a matrix
    (q, k and v) need no scales in common and every kernel knows one arrangement.
    """

    codes: Codes
    values: Tensor
    """[rows, columns] of float8, of int8 or, with `zeros`, of uint8; or uint8 [rows, columns / 2], two codes of 4 bits
    a byte (see `chunk`)."""
    scales: Tensor
    """[rows, groups] of a floating-point type; the last group may be shorter than the others."""
    zeros: Tensor | None
    """[rows, groups] uint8, unsigned codes of 4 or 8 bits; None where codes are signed (int4: less 8) or floats."""
    columns: int
    group: int
    """The columns that one scale covers."""
    order: Tensor | None = None
    """Column c multiplies x's column `order[c]`: GPTQ's act-order sorts columns by group."""
    activations: Activations = "as they are"
    input_scale: Tensor | None = None
    """Of "one scale"."""

    @property
    def rows(self) -> int:
        return self.values.shape[0]

    @property
    def chunk(self) -> int:
        """Columns whose 4-bit codes lie together: byte j of a chunk holds column j low and column j + chunk / 2 high.

        A kernel thus reads a chunk's bytes once, multiplies its low half and its high half each with columns of x
        that lie together, and meets one scale a chunk.
        """
        return chunk_columns(self.group, self.columns)


def chunk_columns(group: int, columns: int) -> int:
    """The most columns, 128 at the most, that divide a group and the row."""
    return next(size for size in (128, 64, 32, 16, 8, 4, 2) if group % size == 0 and columns % size == 0)
