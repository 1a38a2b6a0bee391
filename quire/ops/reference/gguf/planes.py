"""ggml's blocks arranged as a QuantizedMatrix, exactly: codes in one plane or two, scales and minimums in others.

Blocks of 18, 144 or 210 bytes cannot be loaded in wide words, planes can. Bytes grow by a 36th for Q4_K, whose scales
of 6 bits get 8, by a fifth for Q2_K, and not at all for Q4_0, Q6_K and Q8_0 (`IN_PLANES` says how many each type has).
Elements of IQ2 and IQ3 types, which are named in rows of a codebook, get a code each, of 3 and 4 bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.core.ggml_types import PACKED
from quire.core.quantized import PLANES, Codes, chunk_columns
from quire.ops.bit_planes import pack_bits
from quire.ops.cut_matrix import stack_rows
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.gguf.grids import GridBlocks
from quire.ops.reference.gguf.iq2 import iq2_s, iq2_xs, iq2_xxs
from quire.ops.reference.gguf.iq3 import iq3_s, iq3_xxs
from quire.ops.reference.gguf.iq4 import scale_bits
from quire.ops.reference.gguf.k_quants import six_bit_scales, six_bits
from quire.ops.reference.gguf.legacy import five_bits
from quire.ops.reference.gguf.microscaling import powers_of_two, unsigned_e4m3
from quire.ops.reference.gguf.ternary import tq1_0_digits
from quire.ops.reference.gguf.unpack import fields as bit_fields
from quire.ops.reference.gguf.unpack import half

_ELEMENTS_AT_ONCE = 2**25
"""Intermediate values take several bytes an element."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """Of blocks: [blocks, elements or groups of a block]."""

    codes: Codes
    numbers: Tensor
    """uint8, or int8 where codes are of 8 bits."""
    scales: Tensor
    mins: Tensor | None = None
    super_scales: Tensor | None = None
    super_mins: Tensor | None = None


def as_matrix(data: Tensor, kind: str) -> QuantizedMatrix:
    """uint8 [rows, bytes of a row] of a type among `KINDS`."""
    columns = data.shape[1] // PACKED[kind].num_bytes * PACKED[kind].block
    step = max(1, _ELEMENTS_AT_ONCE // columns)
    pieces = [_piece(data[start : start + step], kind, columns) for start in range(0, len(data), step)]
    return pieces[0] if len(pieces) == 1 else stack_rows(pieces)


def _piece(data: Tensor, kind: str, columns: int) -> QuantizedMatrix:
    parts = _PARTS[kind](data.reshape(-1, PACKED[kind].num_bytes))
    rows = len(data)
    low_bits, high_bits = PLANES[parts.codes]
    group = columns * rows // parts.scales.numel()
    chunk = chunk_columns(group, columns)
    values, high = parts.numbers.view(rows, columns), None
    if low_bits < 8:
        if high_bits:
            high = pack_bits(values >> low_bits, high_bits, chunk)
        values = pack_bits(values & (1 << low_bits) - 1, low_bits, chunk)

    def plane(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.reshape(rows, -1)

    return QuantizedMatrix(
        parts.codes,
        values,
        parts.scales.reshape(rows, -1),
        None,
        columns,
        group,
        high=high,
        mins=plane(parts.mins),
        super_scales=plane(parts.super_scales),
        super_mins=plane(parts.super_mins),
    )


def _halves(data: Tensor) -> Tensor:
    return half(data).half()


def _q4_0(blocks: Tensor) -> _Parts:
    return _Parts("int4", bit_fields(blocks[:, 2:], 4, 16), _halves(blocks[:, :2]))


def _q4_1(blocks: Tensor) -> _Parts:
    return _Parts("int4", bit_fields(blocks[:, 4:], 4, 16), _halves(blocks[:, :2]), -_halves(blocks[:, 2:4]))


def _q5_0(blocks: Tensor) -> _Parts:
    return _Parts("int5", five_bits(blocks[:, 2:]), _halves(blocks[:, :2]))


def _q5_1(blocks: Tensor) -> _Parts:
    return _Parts("int5", five_bits(blocks[:, 4:]), _halves(blocks[:, :2]), -_halves(blocks[:, 2:4]))


def _q8_0(blocks: Tensor) -> _Parts:
    return _Parts("int8", blocks[:, 2:].contiguous().view(torch.int8), _halves(blocks[:, :2]))


def _q2_k(blocks: Tensor) -> _Parts:
    both = blocks[:, :16]
    supers = _halves(blocks[:, 80:82]), _halves(blocks[:, 82:84])
    return _Parts("int2", bit_fields(blocks[:, 16:80], 2, 32), both & 15, both >> 4, *supers)


def _q3_k(blocks: Tensor) -> _Parts:
    codes = bit_fields(blocks[:, 32:96], 2, 32) | bit_fields(blocks[:, :32], 1, 32) << 2
    scales = six_bit_scales(blocks[:, 96:108]).to(torch.int8) - 32
    return _Parts("int3", codes, scales, super_scales=_halves(blocks[:, 108:110]))


def _q4_k(blocks: Tensor) -> _Parts:
    supers = _halves(blocks[:, :2]), _halves(blocks[:, 2:4])
    return _Parts("int4", bit_fields(blocks[:, 16:], 4, 32), *six_bits(blocks[:, 4:16]), *supers)


def _q5_k(blocks: Tensor) -> _Parts:
    supers = _halves(blocks[:, :2]), _halves(blocks[:, 2:4])
    codes = bit_fields(blocks[:, 48:], 4, 32) | bit_fields(blocks[:, 16:48], 1, 32) << 4
    return _Parts("int5", codes, *six_bits(blocks[:, 4:16]), *supers)


def _q6_k(blocks: Tensor) -> _Parts:
    codes = bit_fields(blocks[:, :128], 4, 64) | bit_fields(blocks[:, 128:192], 2, 32) << 4
    scales = blocks[:, 192:208].contiguous().view(torch.int8)
    return _Parts("int6", codes, scales, super_scales=_halves(blocks[:, 208:210]))


def _iq4_nl(blocks: Tensor) -> _Parts:
    return _Parts("iq4", bit_fields(blocks[:, 2:], 4, 16), _halves(blocks[:, :2]))


def _iq4_xs(blocks: Tensor) -> _Parts:
    scales = scale_bits(blocks).to(torch.int8) - 32
    return _Parts("iq4", bit_fields(blocks[:, 8:], 4, 16), scales, super_scales=_halves(blocks[:, :2]))


def _grid(of: Callable[[Tensor], GridBlocks]) -> Callable[[Tensor], _Parts]:
    def parts(blocks: Tensor) -> _Parts:
        found = of(blocks)
        return _Parts(found.codes, found.places, found.scales, super_scales=found.super_scales)

    return parts


def _tq1_0(blocks: Tensor) -> _Parts:
    return _ternary(tq1_0_digits(blocks), blocks[:, 52:])


def _tq2_0(blocks: Tensor) -> _Parts:
    return _ternary(bit_fields(blocks[:, :64], 2, 32), blocks[:, 64:])


def _ternary(digits: Tensor, scales: Tensor) -> _Parts:
    """A digit means one less: its scale is its minimum too."""
    return _Parts("int2", digits, _halves(scales), _halves(scales))


def _mxfp4(blocks: Tensor) -> _Parts:
    return _Parts("fp4", bit_fields(blocks[:, 1:], 4, 16), powers_of_two(blocks[:, :1]))


def _nvfp4(blocks: Tensor) -> _Parts:
    return _Parts("fp4", bit_fields(blocks[:, 4:], 4, 8), unsigned_e4m3(blocks[:, :4]).half())


_PARTS: dict[str, Callable[[Tensor], _Parts]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "IQ3_XXS": _grid(iq3_xxs),
    "IQ3_S": _grid(iq3_s),
    "IQ2_XXS": _grid(iq2_xxs),
    "IQ2_XS": _grid(iq2_xs),
    "IQ2_S": _grid(iq2_s),
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
}
KINDS = tuple(_PARTS)
