"""What kernels read of a QuantizedMatrix, tile by tile: codes as numbers, and the scales and minimums of their groups.

A tile's columns are counted in places. A place is a code of 8 bits, one column; or two columns of a chunk, one in each
half of it. Places that lie together hold columns that lie together.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.core.quantized import PLANES
from quire.ops.code_tables import TABLES
from quire.ops.quantized_matrix import QuantizedMatrix

RAISED = {4: 0x43000000, 8: 0x47000000}
"""128 and 32,768 as float32, whose third and second byte add a code of so many bits. An argument and no constant, so
that compilers hold it in a register: as a constant they moved it there for every code."""
_PACK_BYTES = """{
.reg .b32 a, b;
prmt.b32 a, $2, $3, 0x5410;
prmt.b32 b, $4, $5, 0x5410;
prmt.b32 $0, a, b, 0x6420;
prmt.b32 $1, a, b, 0x7531;
}"""
"""Of four numbers of 16 bits, their low bytes in one word and their high bytes in another."""
RUN = 8
"""Neighbouring places that a thread loads at once, all of one group: 16 bytes of x."""


def halves_of(matrix: QuantizedMatrix) -> int:
    """Columns of a place."""
    return 1 if PLANES[matrix.codes][0] == 8 else 2


def can_be_read(matrix: QuantizedMatrix) -> bool:
    """Whether a thread's run has one scale, rows are whole words, and four places have a word in each plane."""
    least = 1 if halves_of(matrix) == 1 else 32 if matrix.high is not None else 16
    return matrix.columns % 16 == 0 and matrix.group % (RUN * halves_of(matrix)) == 0 and matrix.chunk >= least


def plane_arguments(matrix: QuantizedMatrix, *, bytes_in_words: bool = True) -> dict[str, Any]:
    """What every kernel that reads tiles of a matrix is given, but for the sizes of its tiles.

    `bytes_in_words`: whole codes of 8 bits are read four at a time, and become floats without a conversion; tensor
    cores have them sooner one at a time, since they need not change threads then.
    """
    low_bits, high_bits = PLANES[matrix.codes]
    values = matrix.values
    is_float = matrix.codes.startswith("fp8")
    in_words = low_bits < 8 or (bytes_in_words and not is_float)
    signed = in_words and values.dtype == torch.int8
    too_much = matrix.less
    if in_words and matrix.codes not in TABLES:
        too_much += 128 if low_bits < 8 else 32768 + 128 * signed
    if in_words:
        values = values.view(torch.int32)
    elif is_float and values.is_cuda and not _knows_fp8(values.device):
        values = values.view(torch.uint8)
    return {
        "values_at": values,
        "high_at": None if matrix.high is None else matrix.high.view(torch.int32),
        "scales_at": matrix.scales,
        "zeros_at": matrix.zeros,
        "mins_at": matrix.mins,
        "super_scales_at": matrix.super_scales,
        "super_mins_at": matrix.super_mins,
        "table_at": table_of(matrix.codes, values.device) if matrix.codes in TABLES else None,
        "raised": RAISED[8 if low_bits == 8 else 4],
        "values_stride": values.stride(0),
        "groups": matrix.scales.shape[1],
        "low_bits": low_bits,
        "high_bits": high_bits,
        "halves": halves_of(matrix),
        "chunk": 1 if low_bits == 8 else matrix.chunk,
        "group": matrix.group,
        "too_much": too_much,
        "in_words": in_words,
        "signed": signed,
        "moves_bytes": values.is_cuda and torch.version.hip is None,
        "bits_of": matrix.codes if is_float and values.dtype == torch.uint8 else "",
    }


def byte_arguments(matrix: QuantizedMatrix, *, moves_bytes: bool | None = None) -> dict[str, Any]:
    """For kernels that multiply whole numbers as bytes: `plane_arguments`, without what makes floats of codes.

    `moves_bytes`: with instructions of NVIDIA's, which the matrix's device says if it is None.
    """
    planes = plane_arguments(matrix)
    by_instructions = planes["moves_bytes"] if moves_bytes is None else moves_bytes
    of_floats = ("table_at", "raised", "too_much", "in_words", "bits_of", "moves_bytes")
    kept = {name: value for name, value in planes.items() if name not in of_floats}
    sign = "s32" if kept["signed"] else "u32"
    return kept | {
        "less": matrix.less,
        "low_dot": f"dp4a.{sign}.u32 $0, $1, $2, $3;" if by_instructions else None,
        "high_dot": f"dp4a.{sign}.s32 $0, $1, $2, $3;" if by_instructions else None,
        "pack": _PACK_BYTES if by_instructions else None,
    }


def pair_arguments(matrix: QuantizedMatrix, dtype: torch.dtype, *, moves_bytes: bool) -> dict[str, Any]:
    """For kernels that make 16-bit numbers of codes of 4 bits, two at a time, whose type is x's."""
    in_pairs = PLANES[matrix.codes] == (4, 0) and matrix.codes not in TABLES
    by_instructions = in_pairs and moves_bytes
    type_name = "bf16x2" if dtype == torch.bfloat16 else "f16x2"
    first, second = (_of_a_half(dtype, half, matrix.less) if by_instructions else None for half in (0, 1))
    return {
        "in_pairs": in_pairs,
        "first_half": first,
        "second_half": second,
        "multiply_add": f"fma.rn.{type_name} $0, $1, $2, $3;" if by_instructions else None,
    }


@cache
def _of_a_half(dtype: torch.dtype, half: int, less: int) -> str:
    """Of a word with four places, the even ones' codes to $0 and the odd ones' to $1, less a number.

    A code becomes the lowest bits of a mantissa whose exponent makes them whole numbers: 128 + code in bfloat16,
    1,024 + code in float16. What is too much is subtracted, exactly, by a product with 1.
    """
    is_bfloat = dtype == torch.bfloat16
    raised = 128 if is_bfloat else 1024
    one, magic, minus = (_twice(number, dtype) for number in (1.0, raised, -(raised + less)))
    type_name = "bf16x2" if is_bfloat else "f16x2"
    lines = ["{", ".reg .b32 t, one, minus;", f"mov.b32 one, {one};", f"mov.b32 minus, {minus};"]
    for result, shift in (("$0", 4 * half), ("$1", 8 + 4 * half)):
        lines += [
            f"shr.b32 t, $2, {shift};",
            f"lop3.b32 t, t, 0x000f000f, {magic}, 0xEA;",
            f"fma.rn.{type_name} {result}, t, one, minus;",
        ]
    return "\n".join([*lines, "}"])


def _twice(number: float, dtype: torch.dtype) -> str:
    """The bits of two equal 16-bit numbers in a word."""
    bits = int(torch.tensor(number, dtype=dtype).view(torch.int16)) & 0xFFFF
    return f"0x{bits:04x}{bits:04x}"


@cache
def _knows_fp8(device: torch.device) -> bool:
    """Older GPUs cannot convert such numbers, so kernels put their bits together."""
    return torch.cuda.get_device_capability(device) >= (8, 9)


@cache
def table_of(codes: str, device: torch.device) -> Tensor:
    """float32 [16]: what codes stand for."""
    return torch.tensor(TABLES[codes], dtype=torch.float32, device=device)


# Kernels compile what comes after a return as well, so functions of theirs have one, at the end.


@triton.jit
def columns_of(place, half: tl.constexpr, halves: tl.constexpr, chunk: tl.constexpr):
    """The column that a place holds in its first or second half."""
    in_half: tl.constexpr = chunk // halves
    return place if halves == 1 else place // in_half * chunk + place % in_half + half * in_half


@triton.jit
def load_where(at, mask, once: tl.constexpr = False):
    """What is stored, or zeros; a mask of None is for tiles that are whole. What is read `once` leaves caches first."""
    eviction: tl.constexpr = "evict_first" if once else ""
    if mask is None:
        data = tl.load(at, eviction_policy=eviction)
    else:
        data = tl.load(at, mask=mask, other=0.0, eviction_policy=eviction)
    return data


@triton.jit
def _word_of(fours, bits: tl.constexpr, chunk: tl.constexpr):
    """Which word of a plane holds four places. Two are neighbours wherever a chunk has as many words."""
    in_half: tl.constexpr = chunk // 8
    in_chunk: tl.constexpr = chunk * bits // 32
    word = fours
    if in_half != in_chunk:
        near: tl.constexpr = 2 if in_chunk >= 2 else 1
        word = fours // in_half * in_chunk + fours % in_half % in_chunk
        word = tl.max_contiguous(tl.multiple_of(word, near), near)
    return word


@triton.jit
def _fields(words, fours, half: tl.constexpr, bits: tl.constexpr, chunk: tl.constexpr):
    """The bits of four columns, each in a byte of its own: those of second halves lie in the upper four of a byte."""
    in_half: tl.constexpr = chunk // 8
    in_chunk: tl.constexpr = chunk * bits // 32
    mask: tl.constexpr = ((1 << bits) - 1) * 0x01010101
    shift = 4 * half if bits == 4 else fours % in_half // in_chunk * bits + 4 * half
    return (words >> shift) & mask


@triton.jit
def load_codes(
    values_rows,
    high_rows,
    start,
    end,
    block: tl.constexpr,
    low_bits: tl.constexpr,
    high_bits: tl.constexpr,
    chunk: tl.constexpr,
    in_words: tl.constexpr,
    whole_blocks: tl.constexpr,
):
    """Of `block` places from `start`: float8 numbers, else words of four places, from both planes (or twice from
    `values`). Rows are pointers [out, 1]."""
    # a thread loads 8 places at once, as it does of x
    if not in_words:
        place = tl.max_contiguous(start + tl.arange(0, block), 8)[None, :]
        data = load_where(values_rows + place, None if whole_blocks else place < end, once=True)
        high = data
    else:
        fours = tl.max_contiguous(start // 4 + tl.arange(0, block // 4), 2)
        mask = None if whole_blocks else (fours * 4 < end)[None, :]
        word = fours if low_bits == 8 else _word_of(fours, low_bits, chunk)
        data = load_where(values_rows + word[None, :], mask, once=True)
        high = data
        if high_bits > 0:
            high = load_where(high_rows + _word_of(fours, high_bits, chunk)[None, :], mask, once=True)
    return data, high


@triton.jit
def codes_of(
    data,
    high,
    table_at,
    raised,
    half: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    low_bits: tl.constexpr,
    high_bits: tl.constexpr,
    chunk: tl.constexpr,
    in_words: tl.constexpr,
    signed: tl.constexpr,
    bits_of: tl.constexpr,
    moves_bytes: tl.constexpr,
):
    """float32 [out, block]: the codes of one half of a tile, whole numbers raised as `too_much` says."""
    if in_words:
        words = code_bytes(data, high, half, block, low_bits, high_bits, chunk)
        if signed:
            words = words ^ -0x7F7F7F80  # 0x80808080 of an int32
        at = 1 if low_bits == 8 else 2  # which byte of the result is the code
        evens = tl.join(
            _byte(words, 0, at, table_at, raised, moves_bytes), _byte(words, 2, at, table_at, raised, moves_bytes)
        )
        odds = tl.join(
            _byte(words, 1, at, table_at, raised, moves_bytes), _byte(words, 3, at, table_at, raised, moves_bytes)
        )
        codes = tl.reshape(tl.join(evens, odds), [block_out, block])
    elif bits_of == "fp8_e4m3":
        # an exponent of 4 bits in place of 8: 120 too low; the smallest numbers keep their meaning as well
        bits = data.to(tl.uint32)
        codes = (((bits & 127) << 20) | ((bits & 128) << 24)).to(tl.float32, bitcast=True) * 1.329227995784916e36
    elif bits_of == "fp8_e5m2":
        codes = (data.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        codes = data.to(tl.float32)
    return codes


@triton.jit
def code_bytes(
    data,
    high,
    half: tl.constexpr,
    block: tl.constexpr,
    low_bits: tl.constexpr,
    high_bits: tl.constexpr,
    chunk: tl.constexpr,
):
    """int32 [out, block / 4]: the codes of one half of a tile, four to a word."""
    # tiles begin with a chunk, so what depends on the place in a chunk is the same in every turn
    fours = tl.arange(0, block // 4)[None, :]
    words = _fields(data, fours, half, low_bits, chunk) if low_bits < 8 else data
    if high_bits > 0:
        words = words | (_fields(high, fours, half, high_bits, chunk) << low_bits)
    return words


@triton.jit
def _byte(words, number: tl.constexpr, at: tl.constexpr, table_at, raised, moves_bytes: tl.constexpr):
    """One byte of each word as a float, raised; or what stands in the table.

    A code becomes bits of a mantissa, which takes no conversion: one instruction moves its byte there, and three bytes
    of what it is raised by.
    """
    if table_at is not None:
        codes = tl.load(table_at + ((words >> (8 * number)) & 15))
    elif not moves_bytes:
        codes = ((((words >> (8 * number)) & 255) << (8 * at)) | raised).to(tl.float32, bitcast=True)
    else:
        # where each byte of the result is taken from, the lowest in the lowest four bits
        selector = 0x7404 + 0x10 * number if at == 1 else 0x7054 + 0x100 * number
        codes = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [words, raised, selector], tl.float32, is_pure=True, pack=1
        )
    return codes


@triton.jit
def load_pairs(values_rows, start, end, block: tl.constexpr, whole_blocks: tl.constexpr):
    """int16 [out, block / 2]: of `block` places from `start` with codes of 4 bits, two places each. Rows are pointers
    to words [out, 1]."""
    two = tl.max_contiguous(start // 2 + tl.arange(0, block // 2), 8)[None, :]
    rows = values_rows.to(tl.pointer_type(tl.int16), bitcast=True)
    return load_where(rows + two, None if whole_blocks else two * 2 < end, once=True)


@triton.jit
def codes_in_pairs(
    data,
    half: tl.constexpr,
    instructions: tl.constexpr,
    less: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    dtype: tl.constexpr,
):
    """[out, block] of a 16-bit type: what `load_pairs` found in one half, less a number; no code is rounded.

    Codes stay two a register all the way, which takes half the instructions of float32. Without instructions the
    numbers are float32.
    """
    if instructions is None:
        even = ((data >> (4 * half)) & 15).to(tl.float32) - less
        odd = ((data >> (8 + 4 * half)) & 15).to(tl.float32) - less
    elif dtype == tl.bfloat16:
        even, odd = tl.inline_asm_elementwise(
            instructions, "=r,=r,r", [data], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=2
        )
    else:
        even, odd = tl.inline_asm_elementwise(
            instructions, "=r,=r,r", [data], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    return tl.reshape(tl.join(even, odd), [block_out, block])


@triton.jit
def multiply_add_in_pairs(numbers, scales, added, instruction: tl.constexpr):
    """numbers * scales + added, of a 16-bit type and rounded once; without an instruction, float32.

    Scales and what is added are numbers, or [out, groups].
    """
    block_out: tl.constexpr = numbers.shape[0]
    block: tl.constexpr = numbers.shape[1]
    scales = spread(tl.full([1, 1], 0.0, tl.float32) + scales, block_out, block).to(numbers.dtype)
    added = spread(tl.full([1, 1], 0.0, tl.float32) + added, block_out, block).to(numbers.dtype)
    if instruction is None:
        result = numbers * scales + added
    else:
        result = tl.inline_asm_elementwise(
            instruction, "=r,r,r,r", [numbers, scales, added], dtype=numbers.dtype, is_pure=True, pack=2
        )
    return result


@triton.jit
def spread(numbers, block_out: tl.constexpr, block: tl.constexpr):
    """[out, groups] to [out, block]: to every place that of its group. One for all stays one."""
    if numbers.shape[1] > 1:
        groups: tl.constexpr = numbers.shape[1]
        wide = tl.broadcast_to(numbers[:, :, None], [block_out, groups, block // groups])
        numbers = tl.reshape(wide, [block_out, block])
    return numbers


@triton.jit
def group_scales(scales_at, super_scales_at, rows, groups, column, mask, group: tl.constexpr):
    """float32 [out, columns]: the scales (or minimums) of the groups that columns are in. `rows` is int64 [out, 1]."""
    stored = load_group_numbers(scales_at, super_scales_at, rows, groups, column, mask, group)
    return group_numbers(stored, super_scales_at)


@triton.jit
def run_numbers(at, super_at, out_rows, groups, column, mask, group: tl.constexpr):
    """float32 [out, runs]: those of groups that runs are in; or, where there is no such plane, something that nothing
    looks at. All but `out_rows` [out, 1] are [runs, 1].

    Loaded the other way round: of loads without neighbours, triton 3.6 gives a warp's threads to the first dimension,
    and only where they stand side by side along a row's runs, as codes do, no scale has to change threads.
    """
    numbers = column.T
    if at is not None:
        numbers = group_scales(at, super_at, out_rows.T, groups, column, mask, group).T
    return numbers


@triton.jit
def load_group_numbers(at, super_at, rows, groups, column, mask, group: tl.constexpr):
    """Scales (or zeros, or minimums) of groups as they are stored, and what they are multiplied by, where there is
    such; or, where there is no such plane, numbers that nothing looks at."""
    numbers = column
    if at is not None:
        numbers = load_where(at + rows * groups + column // group, mask)
    supers = numbers
    if super_at is not None:
        supers = load_where(super_at + rows * tl.cdiv(groups * group, 256) + column // 256, mask)
    return numbers, supers


@triton.jit
def group_numbers(stored, super_at):
    """float32: what `load_group_numbers` loaded."""
    numbers = stored[0].to(tl.float32)
    if super_at is not None:
        numbers *= stored[1].to(tl.float32)
    return numbers
