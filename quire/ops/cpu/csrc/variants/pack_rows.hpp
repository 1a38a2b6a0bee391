// From a row of floats to the format in which it meets a matrix.
#pragma once

#include <algorithm>

#include "../kernels.hpp"
#include "vector.hpp"

namespace quire {
namespace {

// One group to int8, with the scale that maps its largest magnitude to 127.
inline GroupNumbers pack_group(const float* x, int8_t* columns) {
    Floats largest = {}, poison = {};
    for (int64_t column = 0; column < kGroup; column += kWidth) {
        const Floats value = load(x + column);
        largest = larger(largest, larger(value, -value));
        poison += value - value;  // 0, or NaN where a value is NaN or infinite
    }
    if (sum_of(poison) != 0) {  // bytes cannot hold it: the scale must
        std::fill(columns, columns + kGroup, int8_t{1});
        return {NAN, NAN, NAN};
    }
    const float magnitude = largest_of(largest);
    const float step = magnitude / 127.0f;
    const float inverse = magnitude > 1e-30f ? 127.0f / magnitude : 0.0f;  // of less it would be infinite
    const Floats magic = all(12582912.0f);  // rounds to the nearest whole number when added
    Ints total = {};
    for (int64_t column = 0; column < kGroup; column += kWidth) {
        const Ints rounded = bits_as<Ints>(load(x + column) * inverse + magic) - bits_as<Ints>(magic);
        total += rounded;
        store_bytes(columns + column, rounded);
    }
    int32_t counted = 0;
    for (int64_t lane = 0; lane < kWidth; lane++) counted += total[lane];
    const auto count = static_cast<float>(counted);
    return {step, count, step * count};
}

// Row `row` of 16 that lie together.
inline void pack_i8(const float* x, int64_t columns, ByteGroup* groups, int64_t row) {
    int64_t first = 0;
    for (; first + kGroup <= columns; first += kGroup, groups++) {
        groups->numbers[row] = pack_group(x + first, groups->columns[row]);
    }
    if (first < columns) {
        float last[kGroup] = {};
        std::copy(x + first, x + columns, last);
        groups->numbers[row] = pack_group(last, groups->columns[row]);
    }
}

inline void pack_bf16(const float* x, int64_t columns, uint8_t* packed) {
    for (int64_t first = 0; first < columns; first += kGroup, packed += kBrainStep) {
        auto* out = reinterpret_cast<uint16_t*>(packed);
        const int64_t count = std::min(kGroup, columns - first);
        int64_t column = 0;
        for (; column + kWidth <= count; column += kWidth) store_brain(out + column, load(x + first + column));
        for (; column < count; column++) out[column] = brain_of_float(x[first + column]);
        std::fill(out + column, out + kGroup, uint16_t{0});
    }
}

inline void pack_row(const float* x, int64_t columns, Format format, uint8_t* packed, int64_t index) {
    const int64_t padded = round_up(columns, kGroup);
    uint8_t* row = packed + row_offset(format, columns, index);
    if (format == Format::i8) {
        const int64_t within = index % kRowTile;
        pack_i8(x, columns, reinterpret_cast<ByteGroup*>(row - within * kGroup), within);
    } else if (format == Format::f32) {
        auto* out = reinterpret_cast<float*>(row);
        std::copy(x, x + columns, out);
        std::fill(out + columns, out + padded, 0.0f);
    } else {
        pack_bf16(x, columns, row);
    }
}

}  // namespace
}  // namespace quire
