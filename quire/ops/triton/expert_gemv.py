"""Experts of few tokens: every pair of a token and an expert streams that expert's rows by itself, on CUDA cores."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.expert_stack import GROUP, ExpertStack, expanded, first_column
from quire.ops.triton.gated_activation import _gated
from quire.ops.triton.overlap import overlap, wait_for_inputs

_BLOCK_OUT, _BLOCK_IN = 8, 512
_STAGES = 3


def up_pairs(x: Tensor, ids: Tensor, weights: Tensor | None, up: ExpertStack, experts: int, activation: str) -> Tensor:
    """activation(gate(x)) * up(x) of each pair: [pairs, size]; `weights` are those of inputs."""
    size, hidden = up.rows // (2 * experts), x.shape[1]
    inner = torch.empty((ids.numel(), size), dtype=x.dtype, device=x.device)
    _up[(triton.cdiv(size, _BLOCK_OUT), ids.numel())](
        inner,
        x,
        ids,
        weights,
        *up,
        up.rows // 2,
        top_k=ids.shape[1],
        size=size,
        hidden=hidden,
        activation=activation,
        block_out=_BLOCK_OUT,
        block_in=min(_BLOCK_IN, triton.next_power_of_2(hidden)),
        stages=_STAGES,
        num_warps=4,
        **overlap(x),
    )
    return inner


def down_pairs(inner: Tensor, ids: Tensor, weights: Tensor | None, down: ExpertStack, hidden: int) -> Tensor:
    """The weighted sum over each token's experts: [tokens, hidden]."""
    tokens, top_k = ids.shape
    size = inner.shape[1]
    y = torch.empty((tokens, hidden), dtype=inner.dtype, device=inner.device)
    _down[(triton.cdiv(hidden, _BLOCK_OUT), tokens)](
        y,
        inner,
        ids,
        weights,
        *down,
        top_k=top_k,
        size=size,
        hidden=hidden,
        block_out=_BLOCK_OUT,
        block_in=min(_BLOCK_IN, triton.next_power_of_2(size)),
        stages=_STAGES,
        num_warps=4,
        **overlap(inner),
    )
    return y


@triton.jit
def _product(
    x_at, weight_at, scales_at, row, in_size: tl.constexpr, block_in: tl.constexpr, stages: tl.constexpr
):  # fmt: skip
    """Of x and each of the rows, in float32. row: int64 [outputs]."""
    if scales_at is None:
        rows_at = weight_at + row[:, None] * in_size
        total = tl.zeros([row.shape[0], block_in], tl.float32)
        for start in tl.range(0, in_size, block_in, num_stages=stages):
            inputs = start + tl.arange(0, block_in)
            within = inputs < in_size
            x = tl.load(x_at + inputs, mask=within, other=0.0).to(tl.float32)
            rows = tl.load(rows_at + inputs[None, :], mask=within[None, :], other=0.0, eviction_policy="evict_first")
            total += rows.to(tl.float32) * x[None, :]
    else:
        half: tl.constexpr = GROUP // 2
        rows_at = weight_at + row[:, None] * (in_size // 2)
        scale_rows = scales_at + row[:, None] * (in_size // GROUP)
        total = tl.zeros([row.shape[0], block_in // 2], tl.float32)
        for start in tl.range(0, in_size // 2, block_in // 2, num_stages=stages):
            place = start + tl.arange(0, block_in // 2)
            within = place < in_size // 2
            column = first_column(place)
            x = tl.load(x_at + column, mask=within, other=0.0).to(tl.float32)
            x_later = tl.load(x_at + column + half, mask=within, other=0.0).to(tl.float32)
            codes = tl.load(rows_at + place[None, :], mask=within[None, :], other=0, eviction_policy="evict_first")
            scales = tl.load(scale_rows + (place // half)[None, :], mask=within[None, :], other=0.0)
            total += expanded(codes & 15, scales, tl.float32) * x[None, :]
            total += expanded(codes >> 4, scales, tl.float32) * x_later[None, :]
    return tl.sum(total, axis=1)


@triton.jit
def _up(
    inner_at,
    x_at,
    ids_at,
    weights_at,
    up_at,
    scales_at,
    bias_at,
    first_up,
    top_k: tl.constexpr,
    size: tl.constexpr,
    hidden: tl.constexpr,
    activation: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """inner[pair, out] = activation(gate · x) * (up · x); rows of ups begin at `first_up`."""
    wait_for_inputs(overlapped, early=False)
    pair = tl.program_id(1)
    output = tl.program_id(0) * block_out + tl.arange(0, block_out)
    expert = tl.load(ids_at + pair)
    # past the last output its weights are read again, and no store takes the result
    row = expert * size + tl.minimum(output, size - 1)
    x_row = x_at + (pair // top_k) * hidden
    gate = _product(x_row, up_at, scales_at, row, hidden, block_in, stages)
    up = _product(x_row, up_at, scales_at, row + first_up, hidden, block_in, stages)
    if weights_at is not None:
        share = tl.load(weights_at + pair)
        gate, up = gate * share, up * share
    if bias_at is not None:
        gate += tl.load(bias_at + row).to(tl.float32)
        up += tl.load(bias_at + row + first_up).to(tl.float32)
    kind: tl.constexpr = inner_at.dtype.element_ty
    gated = _gated(gate.to(kind), up.to(kind), activation, kind)
    tl.store(inner_at + pair * size + output, gated.to(kind), mask=output < size)


@triton.jit
def _down(
    y_at,
    inner_at,
    ids_at,
    weights_at,
    down_at,
    scales_at,
    bias_at,
    top_k: tl.constexpr,
    size: tl.constexpr,
    hidden: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """y[token, out] = Σ weight * (down · inner) over the token's experts, each rounded first."""
    wait_for_inputs(overlapped, early=False)
    token = tl.program_id(1)
    output = tl.program_id(0) * block_out + tl.arange(0, block_out)
    kind: tl.constexpr = y_at.dtype.element_ty
    total = tl.zeros([block_out], tl.float32)
    for rank in range(top_k):
        pair = token * top_k + rank
        row = tl.load(ids_at + pair) * hidden + tl.minimum(output, hidden - 1)
        product = _product(inner_at + pair * size, down_at, scales_at, row, size, block_in, stages)
        if bias_at is not None:
            product += tl.load(bias_at + row).to(tl.float32)
        product = product.to(kind).to(tl.float32)
        total += product * tl.load(weights_at + pair) if weights_at is not None else product
    tl.store(y_at + token * hidden + output, total.to(kind), mask=output < hidden)
