"""QuantizedMatrix: a matrix in at most 8 bits with a scale for each row and group of columns, as ops multiply by it."""

from dataclasses import dataclass

from torch import Tensor

from quire.core.quantized import PLANES, Activations, Codes, chunk_columns

SUPER_COLUMNS = 256
"""Columns that share a super scale."""

ROW_PLANES = ("values", "high", "scales", "zeros", "mins", "super_scales", "super_mins")
"""The tensors of a matrix that have a row for each of its rows."""


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """[rows, columns]: element (r, c) is (code - zero) * scale, with the zero and scale of row r and c's group.

    Where there are `mins` it is code * scale - min instead. A scale of a whole tensor or of a block of rows is held
    once for each of its rows, so that the parts of a matrix (q, k and v) need no scales in common and every kernel
    knows one arrangement.
    """

    codes: Codes
    values: Tensor
    """[rows, columns] of float8, of int8 or, with `zeros`, of uint8; or uint8 [rows, columns * bits / 8], several codes
    a byte (see `chunk`)."""
    scales: Tensor
    """[rows, groups]: floats, or whole numbers where there are `super_scales`; the last group may be shorter."""
    zeros: Tensor | None
    """[rows, groups] uint8, unsigned codes of 4 or 8 bits; None where codes are signed (less half their range, but for
    int8), floats, or have `mins`."""
    columns: int
    group: int
    """The columns that one scale covers."""
    order: Tensor | None = None
    """Column c multiplies x's column `order[c]`: GPTQ's act-order sorts columns by group."""
    activations: Activations = "as they are"
    input_scale: Tensor | None = None
    """Of "one scale"."""
    high: Tensor | None = None
    """uint8 [rows, columns * high bits / 8]: the bits of codes of 3, 5 and 6 bits that `values` has no room for."""
    mins: Tensor | None = None
    """[rows, groups], as `scales`: codes are unsigned."""
    super_scales: Tensor | None = None
    """[rows, columns / 256]: what the scales of 256 columns are multiplied by (ggml's K types)."""
    super_mins: Tensor | None = None
    """The same for `mins`."""

    @property
    def rows(self) -> int:
        return self.values.shape[0]

    @property
    def chunk(self) -> int:
        """Columns whose codes of less than a byte lie together, in each plane (`values` and `high`).

        A plane of b bits has n = chunk * b / 8 bytes a chunk; byte j holds columns j, j + n, j + 2 n, … from its lowest
        bits up. For 4 bits these are j low and j + chunk / 2 high. A kernel thus reads a chunk's bytes once, multiplies
        its first half and its second half each with columns of x that lie together, and meets one scale in each half.
        """
        return chunk_columns(self.group, self.columns)

    @property
    def less(self) -> int:
        """What is subtracted from every code where neither zeros nor minimums say it."""
        bits = sum(PLANES[self.codes])
        is_unsigned = self.zeros is not None or self.mins is not None
        return 0 if is_unsigned or bits == 8 or not self.codes.startswith("int") else 1 << bits - 1

    @property
    def nbytes(self) -> int:
        """Of all its planes."""
        return sum(plane.nbytes for plane in self.row_planes().values())

    def row_planes(self) -> dict[str, Tensor]:
        """Those of `ROW_PLANES` that it has."""
        planes = {name: getattr(self, name) for name in ROW_PLANES}
        return {name: plane for name, plane in planes.items() if plane is not None}
