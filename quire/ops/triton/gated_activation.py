"""gated_activation on a GPU: each program takes a stretch of one row of gates and the same stretch of its ups."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.triton.overlap import overlap, wait_for_inputs

_STRETCH = 1024
"""Elements of a program: 8 for each thread of 4 warps, so one load of 16 bytes of half precision for gate and for up.
A single token of a size of 14336 is then spread over 14 multiprocessors."""

_ELEMENTS_PER_WARP = 256


@triton.jit
def _activated(gate, activation: tl.constexpr):
    """The activation of float32 gates."""
    if activation == "silu":
        activated = gate / (1.0 + tl.exp(-gate))
    elif activation == "gelu_tanh":
        # (1 + tanh(y)) / 2 is sigmoid(2y), which keeps its precision where tanh(y) nears -1; the factor is 2 √(2/π)
        slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        activated = gate / (1.0 + tl.exp(-slope))
    elif activation == "quick_gelu":
        activated = gate / (1.0 + tl.exp(-1.702 * gate))
    elif activation == "relu":
        activated = tl.where(gate < 0.0, 0.0, gate)  # asked so, NaN stays
    else:
        activated = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    return activated


@triton.jit
def _gated(gate, up, activation: tl.constexpr, kind: tl.constexpr):
    """`activation(gate) * up` in float32 of numbers of `kind`, rounded where the definition rounds."""
    gate, up = gate.to(tl.float32), up.to(tl.float32)
    if activation == "clamped_swiglu":
        gate = tl.where(gate > 7.0, 7.0, gate)
        up = tl.where(up > 7.0, 7.0, tl.where(up < -7.0, -7.0, up))
        gated = gate / (1.0 + tl.exp(-1.702 * gate)) * (up + 1.0)
    else:
        gated = _activated(gate, activation).to(kind).to(tl.float32) * up
    return gated


@triton.jit
def _gated_activation(
    gate_up_at,
    row_stride,
    out_at,
    size: tl.constexpr,
    block: tl.constexpr,
    activation: tl.constexpr,
    overlapped: tl.constexpr,
):
    wait_for_inputs(overlapped)
    stretches: tl.constexpr = (size + block - 1) // block
    # one axis: the second of a grid ends at 65535
    row = (tl.program_id(0) // stretches).to(tl.int64)
    column = (tl.program_id(0) % stretches) * block + tl.arange(0, block)
    within = column < size
    gate_at = gate_up_at + row * row_stride + column
    gate = tl.load(gate_at, mask=within, other=0.0)
    up = tl.load(gate_at + size, mask=within, other=0.0)
    gated = _gated(gate, up, activation, gate.dtype)
    tl.store(out_at + row * size + column, gated.to(out_at.dtype.element_ty), mask=within)


def gated_activation(gate_up: Tensor, activation: str) -> Tensor:
    """gate_up: [..., 2 * size], with contiguous rows."""
    assert gate_up.stride(-1) == 1, f"rows must be contiguous, strides are {gate_up.stride()}"
    size = gate_up.shape[-1] // 2
    rows = gate_up.reshape(-1, 2 * size)  # a view, unless rows of more than two dimensions are strewn about
    out = torch.empty((*gate_up.shape[:-1], size), dtype=gate_up.dtype, device=gate_up.device)
    block = min(_STRETCH, triton.next_power_of_2(size))
    _gated_activation[(rows.shape[0] * triton.cdiv(size, block),)](
        rows,
        rows.stride(0),
        out,
        size=size,
        block=block,
        activation=activation,
        num_warps=max(1, block // _ELEMENTS_PER_WARP),
        **overlap(gate_up),
    )
    return out
