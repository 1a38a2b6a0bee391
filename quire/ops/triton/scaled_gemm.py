"""x Wᵀ for many rows where both are 8-bit numbers with scales: tensor cores multiply them as they are.

cuBLAS multiplies float8 numbers with a scale for each row of x and W; a kernel of our own multiplies int8, and numbers
with a scale for each group.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.triton.card import card_of
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.quantize_rows import quantize_rows
from quire.ops.triton.scaled_gemm_choices import BLOCK_IN, Tile, choose_tile
from quire.ops.triton.staged import launch_staged


def can_multiply(matrix: QuantizedMatrix) -> bool:
    """Whether it is the kind that is multiplied so: its checkpoint was made for activations in 8 bits."""
    is_known = matrix.codes in ("fp8_e4m3", "int8") and matrix.zeros is None
    in_groups = matrix.scales.shape[1] > 1
    groups_fit = not in_groups or matrix.group % BLOCK_IN == 0
    return is_known and matrix.activations != "as they are" and groups_fit and matrix.columns % 16 == 0


def multiply_quantized(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None) -> Tensor:
    """`x matrixᵀ + bias` with x [rows, columns] quantized as the matrix says."""
    by_group = matrix.activations == "a scale each group" and matrix.columns % matrix.group == 0
    values, scales = quantize_rows(x, matrix.values.dtype, matrix.group if by_group else 0, matrix.input_scale)
    if x.dtype == torch.bfloat16 and _is_for_cublas(matrix, scales):
        return torch._scaled_mm(
            values,
            matrix.values.t(),
            scale_a=scales,
            scale_b=matrix.scales.float().t(),
            bias=bias,
            out_dtype=x.dtype,
            use_fast_accum=True,
        )
    tile = choose_tile(card_of(x.device), x.shape[0], matrix.rows, in_groups=matrix.scales.shape[1] > 1)
    return multiply_tiles(tile, values, scales, matrix, bias, x.dtype)


def _is_for_cublas(matrix: QuantizedMatrix, scales: Tensor) -> bool:
    is_plain = matrix.codes == "fp8_e4m3" and matrix.scales.shape[1] == scales.shape[1] == 1
    return is_plain and matrix.values.is_cuda and matrix.rows % 16 == 0 and torch.version.hip is None


def multiply_tiles(
    tile: Tile, values: Tensor, scales: Tensor, matrix: QuantizedMatrix, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """The kernel of our own, in given tiles. values: [rows, columns], scales: [rows, groups] or [rows, 1]."""
    rows, columns = values.shape
    y = torch.empty((rows, matrix.rows), dtype=dtype, device=values.device)
    in_groups = matrix.scales.shape[1] > 1 or scales.shape[1] > 1
    blocks = (triton.cdiv(rows, tile.block_rows), triton.cdiv(matrix.rows, tile.block_out))
    arguments = (
        y,
        TensorDescriptor.from_tensor(values, [tile.block_rows, BLOCK_IN]),
        TensorDescriptor.from_tensor(matrix.values, [tile.block_out, BLOCK_IN]),
        scales,
        matrix.scales,
        bias,
        rows,
        matrix.rows,
        columns,
        scales.shape[1],
        matrix.scales.shape[1],
    )
    settings = {
        "x_group": columns // scales.shape[1],
        "group": matrix.group,
        "in_groups": in_groups,
        "whole": matrix.codes == "int8",
        "widen": not values.is_cuda,
        "block_rows": tile.block_rows,
        "block_out": tile.block_out,
        "block_in": BLOCK_IN,
        "stages": tile.num_stages,
        "num_warps": tile.num_warps,
        **overlap(values),
    }
    launch_staged(_multiply, (blocks[0] * blocks[1],), arguments, settings, "stages")
    return y


@triton.jit(do_not_specialize=["rows"])
def _multiply(
    y_at,
    x_tiles,
    weight_tiles,
    x_scales_at,
    scales_at,
    bias_at,
    rows,
    out_size,
    in_size,
    x_groups,
    groups,
    x_group: tl.constexpr,
    group: tl.constexpr,
    in_groups: tl.constexpr,
    whole: tl.constexpr,
    widen: tl.constexpr,
    block_rows: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """y[row, out] = Σ x[row, in] * weight[out, in], scaled at the end, or block by block where scales have groups."""
    wait_for_inputs(overlapped, early=False)
    # programs that run together share their weights and, in bands of 8 blocks, their rows
    band: tl.constexpr = 8
    program = tl.program_id(0)
    row_blocks = tl.cdiv(rows, block_rows)
    in_band = band * tl.cdiv(out_size, block_out)
    first_row_block = program // in_band * band
    band_rows = tl.minimum(row_blocks - first_row_block, band)
    first_row = (first_row_block + program % in_band % band_rows) * block_rows
    first_out = program % in_band // band_rows * block_out
    row = first_row + tl.arange(0, block_rows)
    output = first_out + tl.arange(0, block_out)
    is_row, is_output = row < rows, output < out_size
    x_scale_rows = x_scales_at + row.to(tl.int64) * x_groups
    scale_rows = scales_at + output.to(tl.int64) * groups

    sum_type: tl.constexpr = tl.int32 if whole and not widen else tl.float32
    total = tl.zeros([block_rows, block_out], tl.float32 if in_groups else sum_type)
    for start in tl.range(0, in_size, block_in, num_stages=stages):
        x = x_tiles.load([first_row, start])
        weights = weight_tiles.load([first_out, start])
        if widen:  # the interpreter multiplies no numbers of 8 bits
            x = x.to(tl.float32)
            weights = weights.to(tl.float32)
        if in_groups:
            part = tl.dot(x, weights.T, out_dtype=sum_type).to(tl.float32)
            x_scale = tl.load(x_scale_rows + start // x_group, mask=is_row, other=0.0)
            scale = tl.load(scale_rows + start // group, mask=is_output, other=0.0).to(tl.float32)
            total += part * x_scale[:, None] * scale[None, :]
        else:
            total = tl.dot(x, weights.T, total, out_dtype=sum_type)

    result = total.to(tl.float32)
    if not in_groups:
        result *= tl.load(x_scale_rows, mask=is_row, other=0.0)[:, None]
        result *= tl.load(scale_rows, mask=is_output, other=0.0).to(tl.float32)[None, :]
    if bias_at is not None:
        result += tl.load(bias_at + output, mask=is_output, other=0.0).to(tl.float32)[None, :]
    to = y_at + row.to(tl.int64)[:, None] * out_size + output[None, :]
    tl.store(to, result.to(y_at.dtype.element_ty), mask=is_row[:, None] & is_output[None, :])
