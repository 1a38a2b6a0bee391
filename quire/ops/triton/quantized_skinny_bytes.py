"""x Wᵀ for one or two rows and a QuantizedMatrix of whole numbers, by dot products of bytes (dp4a) on CUDA cores.

Four codes lie in the bytes of a word, where one instruction multiplies them by four numbers of a byte and adds the
products. x has two such bytes a number: a thread holds its run of x in fixed point, 16 bits beside the run's largest,
which is finer than the 8 bits of bfloat16 or the 11 of float16 for all that counts in a sum. So a code of 4 bits takes
two instructions, where an H200 at full bandwidth has time for 3.4; as floats, codes took four.
"""

import triton
import triton.language as tl

from quire.ops.triton.matrix_planes import code_bytes, columns_of, load_codes, load_where, run_numbers
from quire.ops.triton.overlap import wait_for_inputs
from quire.ops.triton.quantized_skinny_tensor import at_the_end


@triton.jit(do_not_specialize=["rows"])
def multiply_bytes(  # noqa: PLR0915 (a kernel is one function)
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
    values_stride,
    groups,
    places_a_split,
    low_bits: tl.constexpr,
    high_bits: tl.constexpr,
    halves: tl.constexpr,
    chunk: tl.constexpr,
    group: tl.constexpr,
    less: tl.constexpr,
    signed: tl.constexpr,
    pack: tl.constexpr,
    low_dot: tl.constexpr,
    high_dot: tl.constexpr,
    one_scale: tl.constexpr,
    known_rows: tl.constexpr,
    run: tl.constexpr,
    block_out: tl.constexpr,
    block: tl.constexpr,
    whole_blocks: tl.constexpr,
    stages: tl.constexpr,
    loads_first: tl.constexpr,
    overlapped: tl.constexpr,
):
    """result[split, row, out] = Σ over runs of scale * (Σ x * code - zero * Σ x) - min * Σ x, of the split's places.

    A thread loads a run of places of each output and sums their products by itself. Its running sums meet those of
    other threads once, after the loop.

    `loads_first`: no product begins before all loads of a turn are under way. Left to itself the compiler puts loads
    beside their uses, which saves registers and waits for memory many times a turn.
    """
    outputs = tl.program_id(0) * block_out + tl.arange(0, block_out)
    split = tl.program_id(1)
    # past the last output its weights are read again: no load needs a mask for that, and no store takes the result
    out_rows = tl.minimum(outputs, out_size - 1).to(tl.int64)[:, None]
    values_rows = values_at + out_rows * values_stride
    high_rows = values_at if high_bits == 0 else high_at + out_rows * (places * 2 * high_bits // 32)
    begin = split * places_a_split
    end = tl.minimum(begin + places_a_split, places)
    runs: tl.constexpr = block // run
    needs_sum: tl.constexpr = less > 0 or zeros_at is not None or mins_at is not None
    both_halves: tl.constexpr = group >= chunk  # have one scale
    wait_for_inputs(overlapped, early=False)

    totals = ()
    for _ in tl.static_range(known_rows):
        totals += (tl.zeros([block_out, runs], tl.float32),)  # type: ignore[assignment]
    for start in tl.range(begin, end, block, num_stages=stages):
        data, high = load_codes(
            values_rows, high_rows, start, end, block, low_bits, high_bits, chunk, True, whole_blocks
        )
        place = start + tl.arange(0, block)
        within = None if whole_blocks else place < end
        first = (start + tl.arange(0, runs) * run)[:, None]
        has_run = None if whole_blocks else first < end
        codes, scale, zero, minimum = (), (), (), ()
        for half in tl.static_range(halves):
            words = code_bytes(data, high, half, block, low_bits, high_bits, chunk)
            codes += (tl.split(tl.reshape(words, [block_out, runs, 2])),)  # type: ignore[assignment]
            column = columns_of(first, 0 if both_halves else half, halves, chunk)
            scale += (run_numbers(scales_at, super_scales_at, out_rows, groups, column, has_run, group),)  # type: ignore[assignment]
            zero += (run_numbers(zeros_at, None, out_rows, groups, column, has_run, group),)  # type: ignore[assignment]
            minimum += (run_numbers(mins_at, super_mins_at, out_rows, groups, column, has_run, group),)  # type: ignore[assignment]
        if loads_first:
            tl.debug_barrier()
        grown = ()
        for row in tl.static_range(known_rows):
            some = ()
            largest = tl.zeros([runs], tl.float32)
            for half in tl.static_range(halves):
                # said outright, since a thread's codes and its x must be of the same run
                column = tl.max_contiguous(tl.multiple_of(columns_of(place, half, halves, chunk), run), run)
                x = load_where(x_at + row * x_stride + column, within).to(tl.float32)
                x = tl.reshape(x, [runs, run])
                some += (x,)  # type: ignore[assignment]
                largest = _larger(largest, tl.reduce(tl.abs(x), 1, _larger))
            # the least that is not 0 keeps 1 / it finite; of 0 alone all products are 0
            steps = 32767.0 / tl.maximum(largest, 1e-30, propagate_nan=tl.PropagateNan.ALL)
            part = tl.zeros([block_out, runs], tl.float32)
            low = tl.zeros([block_out, runs], tl.int32)
            upper = tl.zeros([block_out, runs], tl.int32)
            x_low = tl.zeros([runs], tl.int32)
            x_upper = tl.zeros([runs], tl.int32)
            for half in tl.static_range(halves):
                low_words, upper_words = _fixed_point(some[half], steps, runs, run, pack)
                low_bytes, upper_bytes = tl.split(low_words), tl.split(upper_words)
                for number in tl.static_range(2):
                    word = codes[half][number]  # type: ignore[var-annotated]
                    low = _dot(word, low_bytes[number][None, :], low, signed, False, low_dot)
                    upper = _dot(word, upper_bytes[number][None, :], upper, signed, True, high_dot)
                    if needs_sum:
                        ones = tl.full([runs], 0x01010101, tl.int32)
                        x_low = _dot(ones, low_bytes[number], x_low, signed, False, low_dot)
                        x_upper = _dot(ones, upper_bytes[number], x_upper, signed, True, high_dot)
                if half == halves - 1 or not both_halves:
                    product = (upper * 256 + low).to(tl.float32)
                    x_sum = (x_upper * 256 + x_low).to(tl.float32)[None, :]
                    if needs_sum:
                        product -= x_sum * less if zeros_at is None else (zero[half] + less) * x_sum
                    product = product if one_scale else product * scale[half]
                    part += product if mins_at is None else product - minimum[half] * x_sum
                    low = tl.zeros([block_out, runs], tl.int32)
                    upper = tl.zeros([block_out, runs], tl.int32)
                    x_low = tl.zeros([runs], tl.int32)
                    x_upper = tl.zeros([runs], tl.int32)
            grown += (totals[row] + part * (largest * (1 / 32767.0))[None, :],)  # type: ignore[assignment]
        totals = grown

    is_output = outputs < out_size
    scale, added = at_the_end(scales_at, bias_at, outputs, is_output, one_scale)
    for row in tl.static_range(known_rows):
        result = tl.sum(totals[row], axis=1) * scale + added
        to = result_at + (split * known_rows + row) * out_size + outputs
        tl.store(to, result.to(result_at.dtype.element_ty), mask=is_output)


@triton.jit
def _larger(one, other):
    """NaN if one of them is."""
    return tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _fixed_point(x, steps, runs: tl.constexpr, run: tl.constexpr, pack: tl.constexpr):
    """x [runs, run] as whole numbers of 16 bits, whose low (unsigned) and high bytes are [runs, run / 4] words each."""
    # 1.5 * 2²³ takes the last bits of a mantissa as whole numbers, rounded to the nearest
    bits = (x * steps[:, None] + 12582912.0).to(tl.int32, bitcast=True)
    even, odd = tl.split(tl.reshape(bits, [runs, run // 4, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    if pack is None:
        low = (first & 255) | ((second & 255) << 8) | ((third & 255) << 16) | (fourth << 24)
        upper = ((first >> 8) & 255) | (second & 0xFF00) | ((third & 0xFF00) << 8) | ((fourth & 0xFF00) << 16)
    else:
        low, upper = tl.inline_asm_elementwise(
            pack, "=r,=r,r,r,r,r", [first, second, third, fourth], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
        )
    return low, upper


@triton.jit
def _dot(codes, x, total, signed: tl.constexpr, x_signed: tl.constexpr, instruction: tl.constexpr):
    """total + Σ of the products of four bytes each; without an instruction, one by one."""
    if instruction is None:
        for number in tl.static_range(4):
            code = (codes >> (8 * number)) & 255
            value = (x >> (8 * number)) & 255
            code = (code ^ 128) - 128 if signed else code
            value = (value ^ 128) - 128 if x_signed else value
            total += code * value
    else:
        total = tl.inline_asm_elementwise(
            instruction, "=r,r,r,r", [codes, x, total], dtype=tl.int32, is_pure=True, pack=1
        )
    return total
