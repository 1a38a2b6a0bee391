"""x Wᵀ for 3 to 256 rows and a QuantizedMatrix, on tensor cores: codes become 16-bit numbers on their way from shared
memory to registers.

Codes of 4 bits are made two at a time in the type of x, all others by way of float32.
"""

import triton
import triton.language as tl

from quire.ops.triton.matrix_planes import (
    codes_in_pairs,
    codes_of,
    columns_of,
    group_numbers,
    load_codes,
    load_group_numbers,
    load_pairs,
    load_where,
    multiply_add_in_pairs,
    spread,
)
from quire.ops.triton.overlap import wait_for_inputs


@triton.jit(do_not_specialize=["rows"])
def multiply_on_tensor_cores(  # noqa: PLR0915 (a kernel is one function)
    result_at,
    x_at,
    bias_at,
    x_stride,
    rows,
    out_size,
    places,
    values_at,
    high_at,
    scales_at,
    zeros_at,
    mins_at,
    super_scales_at,
    super_mins_at,
    table_at,
    raised,
    values_stride,
    groups,
    places_a_split,
    low_bits: tl.constexpr,
    high_bits: tl.constexpr,
    halves: tl.constexpr,
    chunk: tl.constexpr,
    group: tl.constexpr,
    too_much: tl.constexpr,
    in_words: tl.constexpr,
    signed: tl.constexpr,
    bits_of: tl.constexpr,
    moves_bytes: tl.constexpr,
    in_pairs: tl.constexpr,
    first_half: tl.constexpr,
    second_half: tl.constexpr,
    multiply_add: tl.constexpr,
    one_scale: tl.constexpr,
    block_rows: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    whole_blocks: tl.constexpr,
    widen: tl.constexpr,
    stages: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[split, row, out] = Σ weight[out, in] * xᵀ[in, row] over the places of the split.

    Weights are the left operand, as in `skinny_gemm.py`. Programs that run together have the same weights.
    """
    row_blocks = tl.cdiv(rows, block_rows)
    outputs = tl.program_id(0) // row_blocks * block_out + tl.arange(0, block_out)
    split = tl.program_id(1)
    out_rows = tl.minimum(outputs, out_size - 1).to(tl.int64)[:, None]
    values_rows = values_at + out_rows * values_stride
    high_rows = values_at if high_bits == 0 else high_at + out_rows * (places * 2 * high_bits // 32)
    row = tl.program_id(0) % row_blocks * block_rows + tl.arange(0, block_rows)
    is_row = (row < rows)[None, :]
    begin = split * places_a_split
    end = tl.minimum(begin + places_a_split, places)
    # where a block lies in one group, its sums are scaled, else its weights: and those of many rows, since registers
    # do not hold a block's sums beside all others
    scales_sums: tl.constexpr = one_scale or (group % (block * halves) == 0 and mins_at is None and block_rows < 128)
    both_halves: tl.constexpr = group >= chunk  # have one scale
    places_a_group: tl.constexpr = group // halves if both_halves else chunk // halves
    groups_here: tl.constexpr = 1 if scales_sums or places_a_group >= block else block // places_a_group
    dot_type: tl.constexpr = tl.float32 if widen else x_at.dtype.element_ty
    wait_for_inputs(overlapped, early=False)

    total = tl.zeros([block_out, block_rows], tl.float32)
    # what is stored in bytes is too little for copies to shared memory: it is loaded a turn ahead, into registers
    loads_ahead: tl.constexpr = super_scales_at is not None or zeros_at is not None
    numbers = _numbers_of_a_block(
        scales_at, super_scales_at, zeros_at, mins_at, super_mins_at, out_rows, groups, begin, end,
        group, groups_here, places_a_group, halves, chunk, whole_blocks, one_scale,
    )  # fmt: skip
    for start in tl.range(begin, end, block, num_stages=stages):
        number_start = start
        if loads_ahead:
            ahead = numbers
            number_start = tl.minimum(start + block, places - block) if whole_blocks else start + block
        numbers = _numbers_of_a_block(
            scales_at, super_scales_at, zeros_at, mins_at, super_mins_at, out_rows, groups, number_start, end,
            group, groups_here, places_a_group, halves, chunk, whole_blocks, one_scale,
        )  # fmt: skip
        if in_pairs:
            data = load_pairs(values_rows, start, end, block, whole_blocks)
            high = data
        else:
            data, high = load_codes(
                values_rows, high_rows, start, end, block, low_bits, high_bits, chunk, in_words, whole_blocks
            )
        place = start + tl.arange(0, block)
        x_mask = is_row if whole_blocks else is_row & (place < end)[:, None]
        part = total if one_scale or not scales_sums else tl.zeros([block_out, block_rows], tl.float32)
        for half in tl.static_range(halves):
            stored = (ahead if loads_ahead else numbers)[0 if both_halves else half]
            scale = group_numbers(stored[0], super_scales_at)
            zero = group_numbers(stored[1], None)
            minimum = group_numbers(stored[2], super_mins_at)
            if in_pairs:
                weights = codes_in_pairs(
                    data,
                    half,
                    second_half if half else first_half,
                    too_much - 128,
                    block_out,
                    block,
                    x_at.dtype.element_ty,
                )
                weights = _scaled_in_pairs(weights, scale, zero, minimum, zeros_at, mins_at, scales_sums, multiply_add)
            else:
                weights = codes_of(
                    data, high, table_at, raised, half, block_out, block, low_bits, high_bits, chunk,
                    in_words, signed, bits_of, moves_bytes,
                )  # fmt: skip
                weights = _scaled(weights, scale, zero, minimum, too_much, zeros_at, mins_at, scales_sums)
            column = tl.max_contiguous(tl.multiple_of(columns_of(place, half, halves, chunk), 8), 8)
            x = load_where(x_at + row[None, :] * x_stride + column[:, None], x_mask)
            part = tl.dot(weights.to(dot_type), x.to(dot_type), part, input_precision="ieee")
        if scales_sums and not one_scale:
            total += part * scale
        else:
            total = part

    is_output = outputs < out_size
    scale, added = at_the_end(scales_at, bias_at, outputs, is_output, one_scale)
    total = total * scale[:, None] + added[:, None]
    to = result_at + (split * rows + row)[None, :] * out_size + outputs[:, None]
    tl.store(to, total.to(result_at.dtype.element_ty), mask=is_row & is_output[:, None])


@triton.jit
def _numbers_of_a_block(
    scales_at,
    super_scales_at,
    zeros_at,
    mins_at,
    super_mins_at,
    out_rows,
    groups,
    start,
    end,
    group: tl.constexpr,
    groups_here: tl.constexpr,
    places_a_group: tl.constexpr,
    halves: tl.constexpr,
    chunk: tl.constexpr,
    whole_blocks: tl.constexpr,
    one_scale: tl.constexpr,
):
    """Of each half whose groups are its own: scales, zeros and minimums as they are stored."""
    group_place = (start + tl.arange(0, groups_here) * places_a_group)[None, :]
    has_group = None if whole_blocks else group_place < end
    numbers = ()
    for half in tl.static_range(1 if group >= chunk else halves):
        column = columns_of(group_place, half, halves, chunk)
        scales = load_group_numbers(
            None if one_scale else scales_at, super_scales_at, out_rows, groups, column, has_group, group
        )
        zeros = load_group_numbers(zeros_at, None, out_rows, groups, column, has_group, group)
        mins = load_group_numbers(mins_at, super_mins_at, out_rows, groups, column, has_group, group)
        numbers += ((scales, zeros, mins),)  # type: ignore[assignment]
    return numbers


@triton.jit
def _scaled_in_pairs(
    codes, scale, zero, minimum, zeros_at, mins_at, scales_sums: tl.constexpr, multiply_add: tl.constexpr
):
    """Codes less their zeros, which rounds nothing, and, unless sums are, scaled."""
    if zeros_at is not None:
        codes = multiply_add_in_pairs(codes, 1.0, -zero, multiply_add)
    if not scales_sums:
        codes = multiply_add_in_pairs(codes, scale, 0.0 if mins_at is None else -minimum, multiply_add)
    return codes


@triton.jit
def _scaled(codes, scale, zero, minimum, too_much: tl.constexpr, zeros_at, mins_at, scales_sums: tl.constexpr):
    """float32 [out, block]: codes less what they have too much and, unless sums are, scaled."""
    less = too_much if zeros_at is None else zero + too_much
    if scales_sums:
        codes -= less
    else:
        offset = scale * less if mins_at is None else scale * less + minimum
        codes = codes * spread(scale, codes.shape[0], codes.shape[1]) - spread(offset, codes.shape[0], codes.shape[1])
    return codes


@triton.jit
def at_the_end(scales_at, bias_at, outputs, is_output, one_scale: tl.constexpr):
    """What sums are multiplied by, where a row has one scale, and what is added to them."""
    scale = tl.full(outputs.shape, 1.0, tl.float32)
    added = tl.zeros(outputs.shape, tl.float32)
    if one_scale:
        scale = tl.load(scales_at + outputs, mask=is_output, other=0.0).to(tl.float32)
    if bias_at is not None:
        added = tl.load(bias_at + outputs, mask=is_output, other=0.0).to(tl.float32)
    return scale, added
