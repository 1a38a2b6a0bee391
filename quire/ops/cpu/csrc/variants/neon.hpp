// Dot products of bytes on NEON: a register of activations holds 16 columns; instructions take 4 of them by their lane.
#pragma once

#include "bytes.hpp"

#if defined(__ARM_NEON)

namespace quire {
namespace {

constexpr float kBytesBias = 0;

#if defined(__ARM_FEATURE_DOTPROD)

template <int kLane>
inline Ints dot_lane(Ints sums, Bytes weights, Bytes x) {
    return bits_as<Ints>(
        vdotq_laneq_s32(bits_as<int32x4_t>(sums), bits_as<int8x16_t>(weights), bits_as<int8x16_t>(x), kLane));
}

template <int kRows, int kCount, typename Group>
inline void dot_group(const Group& group, int first_part, const int8_t (*rows)[kGroup], Ints (&sums)[kRows][kCount]) {
    for (int64_t half = 0; half < 2; half++) {
        Bytes x[kRows];
        for (int row = 0; row < kRows; row++) x[row] = load_bytes(rows[row] + 16 * half);
        for (int part = 0; part < kCount; part++) {
            const EightColumns left = eight_columns(group, 2 * half, first_part + part);
            const EightColumns right = eight_columns(group, 2 * half + 1, first_part + part);
            // no two neighbours add to the same sum
            for (int row = 0; row < kRows; row++) sums[row][part] = dot_lane<0>(sums[row][part], left.first, x[row]);
            for (int row = 0; row < kRows; row++) sums[row][part] = dot_lane<1>(sums[row][part], left.last, x[row]);
            for (int row = 0; row < kRows; row++) sums[row][part] = dot_lane<2>(sums[row][part], right.first, x[row]);
            for (int row = 0; row < kRows; row++) sums[row][part] = dot_lane<3>(sums[row][part], right.last, x[row]);
        }
    }
}

#else

template <int kLane>
inline int8x16_t for_all_rows(Bytes x) {
    return vreinterpretq_s8_s32(vdupq_laneq_s32(bits_as<int32x4_t>(x), kLane));
}

// Dot products of two rows' 4 columns each in `low`, of two more rows' in `high`.
struct Shorts {
    int16x8_t low, high;

    void add(Bytes weights, int8x16_t x) {
        const auto w = bits_as<int8x16_t>(weights);
        low = vmlal_s8(low, vget_low_s8(w), vget_low_s8(x));
        high = vmlal_high_s8(high, w, x);
    }
};

// 16 bits hold 8 products of nibbles with bytes, 8 * 24 * 127, but only 2 of bytes with bytes, since neither packed
// weights nor activations are ever -128.
template <int kRows, int kCount, typename Group>
inline void dot_group(const Group& group, int first_part, const int8_t (*rows)[kGroup], Ints (&sums)[kRows][kCount]) {
    for (int row = 0; row < kRows; row++) {
        Shorts shorts[kCount] = {};
        int32x4_t low[kCount] = {}, high[kCount] = {};
        for (int64_t half = 0; half < 2; half++) {
            const Bytes x = load_bytes(rows[row] + 16 * half);
            const int8x16_t quads[4] = {for_all_rows<0>(x), for_all_rows<1>(x), for_all_rows<2>(x), for_all_rows<3>(x)};
            for (int64_t quarter = 0; quarter < 2; quarter++) {
                for (int part = 0; part < kCount; part++) {
                    const EightColumns weights = eight_columns(group, 2 * half + quarter, first_part + part);
                    shorts[part].add(weights.first, quads[2 * quarter]);
                    shorts[part].add(weights.last, quads[2 * quarter + 1]);
                    if (kIsNibbles<Group> && half + quarter < 2) continue;
                    low[part] = vpadalq_s16(low[part], shorts[part].low);
                    high[part] = vpadalq_s16(high[part], shorts[part].high);
                    shorts[part] = Shorts{};
                }
            }
        }
        for (int part = 0; part < kCount; part++) {
            sums[row][part] += bits_as<Ints>(vpaddq_s32(low[part], high[part]));
        }
    }
}

#endif

}  // namespace
}  // namespace quire

#endif
