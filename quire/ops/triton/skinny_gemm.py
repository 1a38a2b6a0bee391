"""linear for few rows (a skinny GEMM): weights are read once, at the speed of memory; many rows go to cuBLAS.

Two kernels multiply, on CUDA cores or on tensor cores; both sum in float32, always in the same order.
Where the inputs are split among programs, `split_sums.py` adds their sums.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from quire.ops.triton.card import card_of
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.skinny_gemm_choices import (
    MOST_ROWS,
    MOST_ROWS_ON_CUDA_CORES,
    Choice,
    ceil_div,
    choose,
    padded_rows,
)
from quire.ops.triton.split_sums import add_splits
from quire.ops.triton.staged import launch_staged


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x weightᵀ + bias`. x: [..., in], weight: [out, in], bias: [out]."""
    choice = _choice_for(x, weight)
    return functional.linear(x, weight, bias) if choice is None else linear_by(choice, x, weight, bias)


def _choice_for(x: Tensor, weight: Tensor) -> Choice | None:
    """How to compute a GEMM here, or None where it is cuBLAS's: choices are for 16-bit numbers in plain rows."""
    out_size, in_size = weight.shape
    rows = x.numel() // in_size if in_size else 0
    in_plain_rows = x.stride(-1) == 1 and weight.stride(1) == 1
    if not 1 <= rows <= MOST_ROWS or not out_size or x.dtype != weight.dtype or x.itemsize != 2 or not in_plain_rows:
        return None
    return choose(card_of(x.device), rows, out_size, in_size)


def linear_by(choice: Choice, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`linear`, computed in a given way. Rows of x and weight may lie apart, but each is contiguous."""
    out_size, in_size = weight.shape
    x_rows = x.reshape(-1, in_size)
    rows = x_rows.shape[0]
    if choice.splits == 1:
        y = torch.empty((rows, out_size), dtype=x.dtype, device=x.device)
        _launch_gemm(choice, y, x_rows, weight, bias)
    else:
        sums = torch.empty((choice.splits, rows, out_size), dtype=torch.float32, device=x.device)
        _launch_gemm(choice, sums, x_rows, weight, None)
        y = add_splits(sums, bias, x.dtype)
    return y.view(*x.shape[:-1], out_size)


def _launch_gemm(choice: Choice, result: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Start the programs of a choice. result: [rows, out], or [splits, rows, out] in float32."""
    rows = x.shape[0]
    out_size, in_size = weight.shape
    grid = (ceil_div(out_size, choice.block_out), choice.splits)
    in_per_split = ceil_div(ceil_div(in_size, choice.block_in), choice.splits) * choice.block_in
    arguments = (result, x, weight, bias, x.stride(0), weight.stride(0), rows, out_size, in_size, in_per_split)
    settings = {
        "block_out": choice.block_out,
        "block_in": choice.block_in,
        "whole_blocks": in_size % choice.block_in == 0,
        "stages": choice.num_stages,
        "num_warps": choice.num_warps,
        **overlap(x),
    }
    if choice.cores == "cuda":
        assert rows <= MOST_ROWS_ON_CUDA_CORES
        kernel, settings["known_rows"] = _multiply_on_cuda_cores, rows
    else:
        assert rows <= MOST_ROWS
        kernel, settings["padded_rows"] = _multiply_on_tensor_cores, padded_rows(rows)
        settings["widen"] = not x.is_cuda  # the interpreter holds bfloat16 as integers, and would multiply those
    launch_staged(kernel, grid, arguments, settings, "stages")


@triton.jit(do_not_specialize=["rows"])
def _multiply_on_cuda_cores(
    result_at,
    x_at,
    weight_at,
    bias_at,
    x_stride,
    weight_stride,
    rows,
    out_size,
    in_size,
    in_per_split,
    known_rows: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    whole_blocks: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[split, row, out] = Σ x[row, in] * weight[out, in] over the inputs of the split.

    A thread loads 8 neighbouring inputs of each output and sums their products by itself; its running sums meet those
    of other threads once, after the loop.
    """
    in_a_thread: tl.constexpr = 8
    outputs = tl.program_id(0) * block_out + tl.arange(0, block_out)
    split = tl.program_id(1)
    # past the last output its weights are read again: no load needs a mask for that, and no store takes the result
    weight_rows = weight_at + tl.minimum(outputs, out_size - 1).to(tl.int64)[:, None] * weight_stride
    begin = split * in_per_split
    end = tl.minimum(begin + in_per_split, in_size)
    wait_for_inputs(overlapped, early=False)

    totals = ()
    for _ in tl.static_range(known_rows):
        totals += (tl.zeros([block_out, block_in // in_a_thread], tl.float32),)  # type: ignore[assignment]
    for start in tl.range(begin, end, block_in, num_stages=stages):
        inputs = start + tl.arange(0, block_in)
        if whole_blocks:
            weights = tl.load(weight_rows + inputs[None, :], eviction_policy="evict_first")
        else:
            within = inputs < in_size
            weights = tl.load(
                weight_rows + inputs[None, :], mask=within[None, :], other=0.0, eviction_policy="evict_first"
            )
        weights = weights.to(tl.float32)
        grown = ()
        for row in tl.static_range(known_rows):
            if whole_blocks:
                x = tl.load(x_at + row * x_stride + inputs)
            else:
                x = tl.load(x_at + row * x_stride + inputs, mask=within, other=0.0)
            products = weights * x.to(tl.float32)[None, :]
            grouped = tl.reshape(products, [block_out, block_in // in_a_thread, in_a_thread])
            grown += (totals[row] + tl.sum(grouped, axis=2),)  # type: ignore[assignment]
        totals = grown

    is_output = outputs < out_size
    for row in tl.static_range(known_rows):
        result = tl.sum(totals[row], axis=1)
        if bias_at is not None:
            result += tl.load(bias_at + outputs, mask=is_output, other=0.0).to(tl.float32)
        place = result_at + (split * known_rows + row) * out_size + outputs
        tl.store(place, result.to(result_at.dtype.element_ty), mask=is_output)


@triton.jit(do_not_specialize=["rows"])
def _multiply_on_tensor_cores(
    result_at,
    x_at,
    weight_at,
    bias_at,
    x_stride,
    weight_stride,
    rows,
    out_size,
    in_size,
    in_per_split,
    padded_rows: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    whole_blocks: tl.constexpr,
    widen: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[split, row, out] = Σ weight[out, in] * xᵀ[in, row] over the inputs of the split.

    Weights are the left operand: 64 of their rows fill a warpgroup's instruction, which reads them from shared memory
    where their loads put them, and its columns hold all rows of x.
    """
    outputs = tl.program_id(0) * block_out + tl.arange(0, block_out)
    split = tl.program_id(1)
    weight_rows = weight_at + tl.minimum(outputs, out_size - 1).to(tl.int64)[:, None] * weight_stride
    row = tl.arange(0, padded_rows)
    is_row = (row < rows)[None, :]
    x_rows = x_at + row[None, :] * x_stride
    begin = split * in_per_split
    end = tl.minimum(begin + in_per_split, in_size)
    wait_for_inputs(overlapped, early=False)

    total = tl.zeros([block_out, padded_rows], tl.float32)
    for start in tl.range(begin, end, block_in, num_stages=stages):
        inputs = start + tl.arange(0, block_in)
        if whole_blocks:
            weights = tl.load(weight_rows + inputs[None, :], eviction_policy="evict_first")
            x = tl.load(x_rows + inputs[:, None], mask=is_row, other=0.0)
        else:
            within = inputs < in_size
            weights = tl.load(
                weight_rows + inputs[None, :], mask=within[None, :], other=0.0, eviction_policy="evict_first"
            )
            x = tl.load(x_rows + inputs[:, None], mask=is_row & within[:, None], other=0.0)
        if widen:
            weights = weights.to(tl.float32)
            x = x.to(tl.float32)
        total = tl.dot(weights, x, total, input_precision="ieee")

    is_output = outputs < out_size
    if bias_at is not None:
        total += tl.load(bias_at + outputs, mask=is_output, other=0.0).to(tl.float32)[:, None]
    place = result_at + (split * rows + row)[None, :] * out_size + outputs[:, None]
    tl.store(place, total.to(result_at.dtype.element_ty), mask=is_row & is_output[:, None])
