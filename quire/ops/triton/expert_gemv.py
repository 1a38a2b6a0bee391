"""Experts of few tokens: every pair of a token and an expert streams that expert's rows by itself, on CUDA cores."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.expert_stack import GROUP, ExpertStack, first_column, numbers_of
from quire.ops.triton.gated_activation import _gated
from quire.ops.triton.overlap import overlap, wait_for_inputs

_OUTPUTS = 8
"""Of a program, of one expert."""
_ROWS_OF_SUMS = 32
"""Of a program that sums over experts: with more of them it has fewer outputs, or there would be too few programs."""


class _Pieces(NamedTuple):
    """How a program reads, as measured on an H200 with the experts of Qwen3-30B-A3B, DeepSeek-V2-Lite and gpt-oss."""

    numbers: int
    """At a time, of all its rows."""
    stages: int
    """That many times ahead; fewer would not keep the memory busy."""
    warps_of_sums: int

    def inputs(self, rows: int, in_size: int) -> int:
        """How many a program reads at a time of so many rows."""
        return int(min(self.numbers // rows, triton.next_power_of_2(in_size)))


_PLAIN = _Pieces(4096, stages=4, warps_of_sums=2)
_IN_MXFP4 = _Pieces(8192, stages=3, warps_of_sums=4)


def _pieces(stack: ExpertStack) -> _Pieces:
    return _PLAIN if stack.scales is None else _IN_MXFP4


def up_pairs(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    up: ExpertStack,
    experts: int,
    activation: str,
    *,
    some_elsewhere: bool = False,
) -> Tensor:
    """activation(gate(x)) * up(x) of each pair: [pairs, size]; `weights` are those of inputs."""
    size, hidden = up.rows // (2 * experts), x.shape[1]
    inner = torch.empty((ids.numel(), size), dtype=x.dtype, device=x.device)
    pieces = _pieces(up)
    _up[(triton.cdiv(size, _OUTPUTS), ids.numel())](
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
        some_elsewhere=some_elsewhere,
        block_out=_OUTPUTS,
        block_in=pieces.inputs(2 * _OUTPUTS, hidden),
        stages=pieces.stages,
        num_warps=4,
        **overlap(x),
    )
    return inner


def down_pairs(
    inner: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    down: ExpertStack,
    hidden: int,
    *,
    some_elsewhere: bool = False,
) -> Tensor:
    """The weighted sum over each token's experts: [tokens, hidden]."""
    tokens, top_k = ids.shape
    size = inner.shape[1]
    y = torch.empty((tokens, hidden), dtype=inner.dtype, device=inner.device)
    places = triton.next_power_of_2(top_k)
    block_out = max(1, min(_OUTPUTS, _ROWS_OF_SUMS // places))
    pieces = _pieces(down)
    _down[(triton.cdiv(hidden, block_out), tokens)](
        y,
        inner,
        ids,
        weights,
        *down,
        top_k=top_k,
        places=places,
        size=size,
        hidden=hidden,
        some_elsewhere=some_elsewhere,
        block_out=block_out,
        block_in=pieces.inputs(places * block_out, size),
        stages=pieces.stages,
        num_warps=pieces.warps_of_sums,
        **overlap(inner),
    )
    return y


@triton.jit
def _products(
    x_at, weight_at, scales_at, row, is_x, in_size: tl.constexpr, block_in: tl.constexpr, stages: tl.constexpr
):  # fmt: skip
    """Of rows with the x that they share, in float32. row: int64 [xs, rows of each], x_at: pointers [xs], is_x: [xs].

    All rows are read in one loop: one that ends after a few turns would leave the memory idle before the next. A thread
    sums 8 neighbouring products by itself, so that sums take few registers, and each x is read once for its rows.
    """
    neighbours: tl.constexpr = 8
    xs: tl.constexpr = row.shape[0]
    of_each: tl.constexpr = row.shape[1]
    x_rows = x_at[:, None, None]
    if scales_at is None:
        rows_at = weight_at + row[:, :, None] * in_size
        total = tl.zeros([xs, of_each, block_in // neighbours], tl.float32)
        for start in tl.range(0, in_size, block_in, num_stages=stages):
            inputs = (start + tl.arange(0, block_in))[None, None, :]
            within = (inputs < in_size) & is_x[:, None, None]
            x = tl.load(x_rows + inputs, mask=within, other=0.0).to(tl.float32)
            rows = tl.load(rows_at + inputs, mask=within, other=0.0, eviction_policy="evict_first")
            products = rows.to(tl.float32) * x
            total += tl.sum(tl.reshape(products, [xs, of_each, block_in // neighbours, neighbours]), axis=3)
    else:
        half: tl.constexpr = GROUP // 2
        parts: tl.constexpr = block_in // 2 // neighbours  # of which each has one scale
        rows_at = weight_at + row[:, :, None] * (in_size // 2)
        scale_rows = scales_at + row[:, :, None] * (in_size // GROUP)
        total = tl.zeros([xs, of_each, parts], tl.float32)
        for start in tl.range(0, in_size // 2, block_in // 2, num_stages=stages):
            place = (start + tl.arange(0, block_in // 2))[None, None, :]
            within = (place < in_size // 2) & is_x[:, None, None]
            column = first_column(place)
            x = tl.load(x_rows + column, mask=within, other=0.0).to(tl.float32)
            x_later = tl.load(x_rows + column + half, mask=within, other=0.0).to(tl.float32)
            codes = tl.load(rows_at + place, mask=within, other=0, eviction_policy="evict_first")
            part = (start + tl.arange(0, parts) * neighbours)[None, None, :]
            is_part = (part < in_size // 2) & is_x[:, None, None]
            scales = tl.load(scale_rows + part // half, mask=is_part, other=0.0)
            products = numbers_of(codes) * x + numbers_of(codes >> 4) * x_later
            sums = tl.sum(tl.reshape(products, [xs, of_each, parts, neighbours]), axis=3)
            total += sums * scales.to(tl.float32)
    return tl.sum(total, axis=2)


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
    some_elsewhere: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """inner[pair, out] = activation(gate · x) * (up · x); rows of ups begin at `first_up`."""
    wait_for_inputs(overlapped, early=False)
    pair = tl.program_id(1)
    index = tl.arange(0, 2 * block_out)  # gates, then ups
    output = tl.program_id(0) * block_out + index % block_out
    expert = tl.load(ids_at + pair)
    if some_elsewhere:  # noqa: SIM102 - one is known to the compiler, the other is not
        if expert < 0:  # nobody reads this pair's
            return
    # past the last output its weights are read again, and no store takes the result
    row = expert * size + tl.minimum(output, size - 1) + index // block_out * first_up
    x_at += (pair // top_k) * hidden + tl.arange(0, 1)
    both = _products(x_at, up_at, scales_at, row[None, :], tl.arange(0, 1) == 0, hidden, block_in, stages)
    both = tl.reshape(both, [2 * block_out])
    if weights_at is not None:
        both *= tl.load(weights_at + pair)
    if bias_at is not None:
        both += tl.load(bias_at + row).to(tl.float32)
    both = tl.reshape(both, [2, block_out])
    is_gate = tl.arange(0, 2)[:, None] == 0
    gate = tl.sum(tl.where(is_gate, both, 0.0), axis=0)
    up = tl.sum(tl.where(is_gate, 0.0, both), axis=0)
    output = tl.program_id(0) * block_out + tl.arange(0, block_out)
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
    places: tl.constexpr,  # top_k, made a power of two
    size: tl.constexpr,
    hidden: tl.constexpr,
    some_elsewhere: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """y[token, out] = Σ weight * (down · inner) over the token's experts, each rounded first."""
    wait_for_inputs(overlapped, early=False)
    token = tl.program_id(1)
    rank = tl.arange(0, places)
    is_pair = rank < top_k
    pair = token * top_k + tl.minimum(rank, top_k - 1)
    output = tl.program_id(0) * block_out + tl.arange(0, block_out)
    expert = tl.load(ids_at + pair)
    if some_elsewhere:
        is_pair = is_pair & (expert >= 0)
        expert = tl.maximum(expert, 0)
    row = expert[:, None] * hidden + tl.minimum(output, hidden - 1)[None, :]
    product = _products(inner_at + pair * size, down_at, scales_at, row, is_pair, size, block_in, stages)
    if bias_at is not None:
        product += tl.load(bias_at + row).to(tl.float32)
    kind: tl.constexpr = y_at.dtype.element_ty
    product = product.to(kind).to(tl.float32)
    if weights_at is not None:
        product *= tl.load(weights_at + pair)[:, None]
    if some_elsewhere:
        product = tl.where(is_pair[:, None], product, 0.0)
    total = tl.zeros([block_out], tl.float32)
    for each in tl.static_range(top_k):  # in the order of the token's experts
        total += tl.sum(tl.where(rank[:, None] == each, product, 0.0), axis=0)
    tl.store(y_at + token * hidden + output, total.to(kind), mask=output < hidden)
