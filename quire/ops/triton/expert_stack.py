"""ExpertStack: the matrices of all experts as kernels read them: plain numbers, or MXFP4 that is expanded in registers.

Two codes of MXFP4 lie in a byte, 16 columns apart, and 32 columns share a scale (see `QuantizedMatrix.chunk`). They
stand for numbers that bfloat16 holds exactly, so a product is the same as with an expanded stack.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from quire.core.quantized import multiplies_experts
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.matrix_planes import halves_of, plane_arguments

GROUP = tl.constexpr(32)
"""Columns of a scale."""


class ExpertStack(NamedTuple):
    """[experts * outputs, inputs], and what is added to outputs."""

    values: Tensor
    """uint8 [rows, inputs / 2] where there are scales."""
    scales: Tensor | None
    bias: Tensor | None

    @property
    def rows(self) -> int:
        return self.values.shape[0]


class PackedStack(NamedTuple):
    """The same in any other codes of 8 bits or fewer (`packed_expert_gemv.py`, `packed_expert_gemm.py`)."""

    matrix: QuantizedMatrix
    bias: Tensor | None

    @property
    def rows(self) -> int:
        return self.matrix.rows

    def in_order(self, x: Tensor) -> Tensor:
        """x in the order of the matrix's columns."""
        return x if self.matrix.order is None else x.index_select(1, self.matrix.order)

    def planes(self, *, bytes_in_words: bool) -> dict[str, Any]:
        """The matrix as kernels take it."""
        matrix = self.matrix
        assert multiplies_experts(matrix.codes, matrix.group, matrix.columns), "such experts are expanded"
        planes = plane_arguments(matrix, bytes_in_words=bytes_in_words)
        return planes | {"places": matrix.columns // halves_of(matrix)}


def stack_of(matrix: Tensor | QuantizedMatrix, bias: Tensor | None) -> ExpertStack | PackedStack:
    if not isinstance(matrix, QuantizedMatrix):
        return ExpertStack(matrix, None, bias)
    if (matrix.codes, matrix.group, matrix.chunk) == ("fp4", GROUP.value, GROUP.value):
        return ExpertStack(matrix.values, matrix.scales, bias)
    return PackedStack(matrix, bias)


@triton.jit
def first_column(place):
    """Of the two columns in each byte of a row, the one in its lower bits; the other comes half a group later."""
    half: tl.constexpr = GROUP // 2
    return place // half * (2 * half) + place % half


@triton.jit
def numbers_of(codes):
    """What codes of four bits stand for, in float32: sign, two bits of exponent and one of mantissa."""
    codes = codes.to(tl.int32)
    # where a float has these bits, its exponent is 126 smaller; the codes without an exponent are floats without one
    bits = ((codes & 7) << 22) | ((codes & 8) << 28)
    return bits.to(tl.float32, bitcast=True) * 8.507059173023462e37  # 2 ** 126


@triton.jit
def expanded(codes, scales, kind: tl.constexpr):
    """The numbers of `kind` that codes stand for, times their scales."""
    return (numbers_of(codes) * scales.to(tl.float32)).to(kind)
