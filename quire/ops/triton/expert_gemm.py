"""Grouped GEMMs of experts in tiles: each program multiplies rows of one expert, gathered from where they lie."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.expert_gemm_choices import Strip, Tile
from quire.ops.triton.expert_stack import GROUP, ExpertStack, expanded, first_column
from quire.ops.triton.gated_activation import _gated
from quire.ops.triton.overlap import overlap, wait_for_inputs
from quire.ops.triton.staged import launch_staged

_STRETCH = 1024
"""Elements of a token that a program adds up."""


def multiply_up(
    tile: Tile,
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    tiles: Tensor,
    up: ExpertStack,
    experts: int,
    activation: str,
) -> Tensor:
    """activation(gate(x)) * up(x) of each pair: [pairs, size]; `weights` are those of inputs."""
    size, hidden = up.rows // (2 * experts), x.shape[1]
    inner = torch.empty((ids.numel(), size), dtype=x.dtype, device=x.device)
    settings: dict[str, Any] = {"first_up": experts * size, "activation": activation, "top_k": ids.shape[1]}
    _launch(tile.block_rows, tile.up, (inner, x, ids, weights, tiles, *up, size, hidden), settings)
    return inner


def multiply_down(tile: Tile, inner: Tensor, ids: Tensor, tiles: Tensor, down: ExpertStack, hidden: int) -> Tensor:
    """Each pair's expert's output: [pairs, hidden]."""
    outputs = torch.empty((ids.numel(), hidden), dtype=inner.dtype, device=inner.device)
    settings = {"first_up": 0, "activation": "", "top_k": 1}
    _launch(tile.block_rows, tile.down, (outputs, inner, ids, None, tiles, *down, hidden, inner.shape[1]), settings)
    return outputs


def _launch(block_rows: int, strip: Strip, arguments: tuple[Any, ...], settings: dict[str, Any]) -> None:
    result, x, _, _, tiles, _, _, _, out_size, in_size = arguments
    grid = (triton.cdiv(out_size, strip.block_out) * (tiles.numel() // block_rows),)
    settings |= {
        "block_rows": block_rows,
        "block_out": strip.block_out,
        "block_in": strip.block_in,
        "whole_blocks": in_size % strip.block_in == 0,
        "widen": not result.is_cuda,  # the interpreter holds bfloat16 as integers, and would multiply those
        "stages": strip.num_stages,
        "num_warps": strip.num_warps,
        **overlap(x),
    }
    launch_staged(_multiply, grid, arguments, settings, "stages")


@triton.jit
def _load_where(at, mask, whole: tl.constexpr):
    """What is stored, or zeros where the mask says so; a tile that is whole needs no mask."""
    return tl.load(at) if whole else tl.load(at, mask=mask, other=0.0)


@triton.jit
def _load_x(
    x_rows, is_row, start, in_size,
    packed: tl.constexpr, block_in: tl.constexpr, whole_blocks: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    """x from `start` on, as `_add_product` takes it."""
    if packed:
        inputs = first_column(start // 2 + tl.arange(0, block_in // 2))[None, :]
    else:
        inputs = (start + tl.arange(0, block_in))[None, :]
    mask = is_row[:, None] if whole_blocks else is_row[:, None] & (inputs < in_size)
    x = tl.load(x_rows + inputs, mask=mask, other=0.0)
    x_later = x
    if packed:
        half: tl.constexpr = GROUP // 2
        x_later = tl.load(x_rows + inputs + half, mask=mask, other=0.0)
    if widen:
        x, x_later = x.to(tl.float32), x_later.to(tl.float32)
    return x, x_later


@triton.jit
def _add_product(
    total, x, x_later, weight_at, scales_at, row, start, in_size,
    block_in: tl.constexpr, whole_blocks: tl.constexpr, widen: tl.constexpr,
):  # fmt: skip
    """`total` with the product of x and the inputs from `start` on of the outputs whose weights are at `row`.

    Where weights are packed, x has the inputs in the lower bits of bytes and `x_later` those in their upper bits.
    """
    if scales_at is None:
        inputs = start + tl.arange(0, block_in)[:, None]
        weights = _load_where(weight_at + row[None, :] * in_size + inputs, inputs < in_size, whole_blocks)
        if widen:
            weights = weights.to(tl.float32)
        total = tl.dot(x, weights, total, input_precision="ieee")
    else:
        place = (start // 2 + tl.arange(0, block_in // 2))[:, None]
        within = place < in_size // 2
        codes = _load_where(weight_at + row[None, :] * (in_size // 2) + place, within, whole_blocks)
        half: tl.constexpr = GROUP // 2
        scales = _load_where(scales_at + row[None, :] * (in_size // GROUP) + place // half, within, whole_blocks)
        total = tl.dot(x, expanded(codes & 15, scales, x.dtype), total, input_precision="ieee")
        total = tl.dot(x_later, expanded(codes >> 4, scales, x.dtype), total, input_precision="ieee")
    return total


@triton.jit
def _multiply(
    result_at,
    x_at,
    ids_at,
    weights_at,  # what inputs of pairs are multiplied by; None: nothing
    tiles_at,
    weight_at,
    scales_at,  # of weights in MXFP4; None: they are plain
    bias_at,
    out_size,
    in_size,
    first_up: tl.constexpr,
    activation: tl.constexpr,
    top_k: tl.constexpr,
    block_rows: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    whole_blocks: tl.constexpr,
    widen: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[pair, out] = Σ x[pair // top_k, in] * weight[expert, out, in]; with `first_up`, gates and ups at once.

    Programs of one tile are neighbours and share its rows; the next tiles of its expert find the weights in the cache.
    """
    wait_for_inputs(overlapped, early=False)
    blocks = tl.cdiv(out_size, block_out)
    tile = tl.program_id(0) // blocks
    pair = tl.load(tiles_at + tile * block_rows + tl.arange(0, block_rows))
    first = tl.max(pair, axis=0)
    if first < 0:  # no expert has this tile
        return
    expert = tl.load(ids_at + first)
    is_row = pair >= 0
    output = tl.program_id(0) % blocks * block_out + tl.arange(0, block_out)
    # past the last output its weights are read again, and no store takes the result
    row = expert * out_size + tl.minimum(output, out_size - 1)
    x_rows = x_at + (tl.maximum(pair, 0) // top_k).to(tl.int64)[:, None] * in_size

    total = tl.zeros([block_rows, block_out], tl.float32)
    total_up = tl.zeros([block_rows, block_out], tl.float32)
    for start in tl.range(0, in_size, block_in, num_stages=stages):
        x, x_later = _load_x(
            x_rows, is_row, start, in_size, scales_at is not None, block_in, whole_blocks, widen
        )  # fmt: skip
        total = _add_product(
            total, x, x_later, weight_at, scales_at, row, start, in_size, block_in, whole_blocks, widen
        )  # fmt: skip
        if first_up:
            total_up = _add_product(
                total_up, x, x_later, weight_at, scales_at, row + first_up, start, in_size,
                block_in, whole_blocks, widen,
            )  # fmt: skip

    if weights_at is not None:
        share = tl.load(weights_at + pair, mask=is_row, other=0.0)[:, None]
        total, total_up = total * share, total_up * share
    if bias_at is not None:
        total += tl.load(bias_at + row).to(tl.float32)[None, :]
        if first_up:
            total_up += tl.load(bias_at + row + first_up).to(tl.float32)[None, :]
    kind: tl.constexpr = result_at.dtype.element_ty
    result = total.to(kind)
    if first_up:  # rounded where the definition rounds
        result = _gated(result, total_up.to(kind), activation, kind).to(kind)
    to = result_at + pair.to(tl.int64)[:, None] * out_size + output[None, :]
    tl.store(to, result, mask=is_row[:, None] & (output < out_size)[None, :])


def add_experts(outputs: Tensor, weights: Tensor | None, top_k: int, ids: Tensor | None = None) -> Tensor:
    """y[token] = Σ weight * output over its experts, in their order. outputs: [pairs, hidden]; those whose `ids` are
    below 0 mean nothing.
    """
    tokens, hidden = outputs.shape[0] // top_k, outputs.shape[1]
    y = torch.empty((tokens, hidden), dtype=outputs.dtype, device=outputs.device)
    block = min(_STRETCH, triton.next_power_of_2(hidden))
    grid = (tokens * triton.cdiv(hidden, block),)
    _add[grid](y, outputs, weights, ids, top_k=top_k, hidden=hidden, block=block, num_warps=4, **overlap(outputs))
    return y


@triton.jit
def _add(
    y_at,
    outputs_at,
    weights_at,
    ids_at,
    top_k: tl.constexpr,
    hidden: tl.constexpr,
    block: tl.constexpr,
    overlapped: tl.constexpr,
):
    wait_for_inputs(overlapped)
    stretches: tl.constexpr = (hidden + block - 1) // block
    token = (tl.program_id(0) // stretches).to(tl.int64)
    place = tl.program_id(0) % stretches * block + tl.arange(0, block)
    within = place < hidden
    total = tl.zeros([block], tl.float32)
    for rank in range(top_k):
        pair = token * top_k + rank
        output = tl.load(outputs_at + pair * hidden + place, mask=within, other=0.0).to(tl.float32)
        if ids_at is not None:
            output = tl.where(tl.load(ids_at + pair) >= 0, output, 0.0)
        total += output * tl.load(weights_at + pair) if weights_at is not None else output
    tl.store(y_at + token * hidden + place, total.to(y_at.dtype.element_ty), mask=within)
