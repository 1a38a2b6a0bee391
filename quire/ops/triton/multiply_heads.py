"""Every head's rows times a matrix of its own: what moves `up` of latent attention to queries and to results.

Few rows are bound by reading the matrices, as in `skinny_gemm`: here each head's is cut among programs, which a GPU
brings in while the kernel before them ends. Many rows are torch's batched product.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.attend_keys import dot_type_of
from quire.ops.triton.overlap import overlap, wait_for_inputs

MOST_ROWS = 64
"""Of x. More would read more of x than of the matrices."""
_OUTPUTS, _INPUTS = 32, 128
"""Of a program, and of a turn of its loop: 16 heads of 128 outputs are 64 programs, of 512 outputs 256."""


@triton.jit(do_not_specialize=["rows"])
def _multiply_heads(
    result_at,
    x_at,
    weight_at,
    result_stride,  # of rows
    result_head_stride,
    x_stride,
    x_head_stride,
    weight_head_stride,
    weight_out_stride,
    weight_in_stride,
    rows,
    in_size: tl.constexpr,
    out_size: tl.constexpr,
    dot_type: tl.constexpr,
    padded_rows: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[row, head, out] = Σ x[row, head, in] * weight[head, out, in]."""
    wait_for_inputs(overlapped)
    head = tl.program_id(0)
    outputs = tl.program_id(1) * block_out + tl.arange(0, block_out)
    is_output = outputs < out_size
    row = tl.arange(0, padded_rows)
    is_row = row < rows
    weight_rows = weight_at + head.to(tl.int64) * weight_head_stride + (outputs * weight_out_stride)[:, None]
    x_rows = x_at + head * x_head_stride + (row * x_stride)[None, :]
    total = tl.zeros([block_out, padded_rows], tl.float32)
    for start in range(0, in_size, block_in):
        inputs = start + tl.arange(0, block_in)
        within = inputs < in_size
        weights = tl.load(
            weight_rows + (inputs * weight_in_stride)[None, :], mask=is_output[:, None] & within[None, :], other=0.0
        )
        x = tl.load(x_rows + inputs[:, None], mask=within[:, None] & is_row[None, :], other=0.0)
        total = tl.dot(weights.to(dot_type), x.to(dot_type), total, input_precision="ieee")
    places = result_at + head * result_head_stride + (row * result_stride)[None, :] + outputs[:, None]
    tl.store(places, total.to(result_at.dtype.element_ty), mask=is_output[:, None] & is_row[None, :])


def multiply_heads(result: Tensor, x: Tensor, weight: Tensor) -> None:
    """result[row, head] = weight[head] x[row, head]: [rows, heads, out], [rows, heads, in] and [heads, out, in].

    Rows of result and x are contiguous; weights may be views of any order.
    """
    rows, num_heads, in_size = x.shape
    out_size = weight.shape[1]
    if rows > MOST_ROWS:
        torch.bmm(x.transpose(0, 1), weight.transpose(1, 2), out=result.transpose(0, 1))
        return
    _multiply_heads[(num_heads, triton.cdiv(out_size, _OUTPUTS))](
        result,
        x,
        weight,
        result.stride(0),
        result.stride(1),
        x.stride(0),
        x.stride(1),
        *weight.stride(),
        rows,
        in_size=in_size,
        out_size=out_size,
        dot_type=dot_type_of(x),
        padded_rows=max(16, triton.next_power_of_2(rows)),
        block_out=_OUTPUTS,
        block_in=min(_INPUTS, max(16, triton.next_power_of_2(in_size))),
        num_warps=4,
        **overlap(x),
    )
