"""What kernels read of a QuantizedMatrix, tile by tile: codes as numbers, and the scales and minimums of their groups.

A tile's columns are counted in places. A place is a byte of 8 bits, one column; or what holds two columns of a chunk,
one in each half of it, in 4 bits or fewer. Places that lie together hold columns that lie together.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.code_tables import TABLES
from quire.ops.quantized_matrix import PLANES, QuantizedMatrix

RUN = 8
"""Neighbouring places that a thread loads at once, all of one group: 16 bytes of x."""


def halves_of(matrix: QuantizedMatrix) -> int:
    """Columns of a place."""
    return 1 if PLANES[matrix.codes][0] == 8 else 2


def can_be_read(matrix: QuantizedMatrix) -> bool:
    """Whether a thread's run has one scale, and rows are loaded in words of 8 bytes."""
    places, group = matrix.columns // halves_of(matrix), matrix.group // halves_of(matrix)
    return places % RUN == 0 and group % RUN == 0 and matrix.values.stride(-1) == 1


def plane_arguments(matrix: QuantizedMatrix) -> dict[str, Any]:
    """What every kernel that reads tiles of a matrix is given, but for the sizes of its tiles."""
    low_bits, high_bits = PLANES[matrix.codes]
    values = matrix.values
    is_float = matrix.codes.startswith("fp8")
    if is_float and values.is_cuda and not _knows_fp8(values.device):
        values = values.view(torch.uint8)
    return {
        "values_at": values,
        "high_at": matrix.high,
        "scales_at": matrix.scales,
        "zeros_at": matrix.zeros,
        "mins_at": matrix.mins,
        "super_scales_at": matrix.super_scales,
        "super_mins_at": matrix.super_mins,
        "table_at": table_of(matrix.codes, values.device) if matrix.codes in TABLES else None,
        "values_stride": values.stride(0),
        "groups": matrix.scales.shape[1],
        "low_bits": low_bits,
        "high_bits": high_bits,
        "halves": halves_of(matrix),
        "chunk": 1 if low_bits == 8 else matrix.chunk,
        "group": matrix.group // halves_of(matrix),
        "less": matrix.less,
        "bits_of": matrix.codes if is_float and values.dtype == torch.uint8 else "",
    }


@cache
def _knows_fp8(device: torch.device) -> bool:
    """Older GPUs cannot convert such numbers, so kernels put their bits together."""
    return torch.cuda.get_device_capability(device) >= (8, 9)


@cache
def table_of(codes: str, device: torch.device) -> Tensor:
    """float32 [16]: what codes stand for."""
    return torch.tensor(TABLES[codes], dtype=torch.float32, device=device)


@triton.jit
def columns_of(place, half: tl.constexpr, halves: tl.constexpr, chunk: tl.constexpr):
    """The column that a place holds in its first or second half."""
    if halves == 1:
        return place
    in_half: tl.constexpr = chunk // 2
    return place // in_half * chunk + place % in_half + half * in_half


@triton.jit
def _byte_of(place, bits: tl.constexpr, chunk: tl.constexpr):
    """Which byte of a plane of 4 bits or fewer holds a place."""
    in_half: tl.constexpr = chunk // 2
    in_chunk: tl.constexpr = chunk * bits // 8
    if in_half == in_chunk:
        return place
    return place // in_half * in_chunk + place % in_half % in_chunk


@triton.jit
def _field(data, place, half: tl.constexpr, bits: tl.constexpr, chunk: tl.constexpr):
    """The bits of a column's code among the byte that `_byte_of` names: second halves lie in the upper four."""
    in_half: tl.constexpr = chunk // 2
    in_chunk: tl.constexpr = chunk * bits // 8
    if bits == 4:
        if half == 0:
            return data & 15
        return data >> 4
    shift = (place % in_half // in_chunk * bits + 4 * half).to(tl.uint8)
    return (data >> shift) & ((1 << bits) - 1)


@triton.jit
def load_where(at, mask, eviction: tl.constexpr = ""):
    """What is stored, or zeros; a mask of None is for tiles that are whole."""
    if mask is None:
        return tl.load(at, eviction_policy=eviction)
    return tl.load(at, mask=mask, other=0.0, eviction_policy=eviction)


@triton.jit
def load_bytes(
    values_rows, high_rows, place, mask, low_bits: tl.constexpr, high_bits: tl.constexpr, chunk: tl.constexpr
):
    """The bytes of a tile, from `values` and from `high` (or twice from `values`). Rows are pointers [out, 1]."""
    if low_bits == 8:
        data = load_where(values_rows + place, mask, "evict_first")
    else:
        data = load_where(values_rows + _byte_of(place, low_bits, chunk), mask, "evict_first")
    if high_bits == 0:
        return data, data
    return data, load_where(high_rows + _byte_of(place, high_bits, chunk), mask, "evict_first")


@triton.jit
def codes_of(
    data,
    high,
    place,
    table_at,
    half: tl.constexpr,
    low_bits: tl.constexpr,
    high_bits: tl.constexpr,
    chunk: tl.constexpr,
    bits_of: tl.constexpr,
):
    """The codes of one half of a tile as float32; nothing is subtracted from them yet."""
    if low_bits == 8:
        if bits_of == "fp8_e4m3":
            # an exponent of 4 bits in place of 8: 120 too low; the smallest numbers keep their meaning as well
            bits = data.to(tl.uint32)
            return (((bits & 127) << 20) | ((bits & 128) << 24)).to(tl.float32, bitcast=True) * 1.329227995784916e36
        elif bits_of == "fp8_e5m2":
            return (data.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
        else:
            return data.to(tl.float32)
    code = _field(data, place, half, low_bits, chunk)
    if high_bits > 0:
        code = code | (_field(high, place, half, high_bits, chunk) << low_bits)
    if table_at is not None:
        return tl.load(table_at + code.to(tl.int32))
    return code.to(tl.float32)


@triton.jit
def group_scales(scales_at, super_scales_at, rows, groups, place, mask, group: tl.constexpr, halves: tl.constexpr):
    """float32 [out, places]: the scales (or minimums) of the groups that places are in. `rows` is int64 [out, 1]."""
    scales = load_where(scales_at + rows * groups + place // group, mask).to(tl.float32)
    if super_scales_at is not None:
        supers: tl.constexpr = 256 // halves
        each = supers // group
        scales *= load_where(super_scales_at + rows * tl.cdiv(groups, each) + place // supers, mask).to(tl.float32)
    return scales
