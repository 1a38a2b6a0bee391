// Many rows of bytes on aarch64: a panel is brought once into the form that instructions take, with float scales, and
// multiplied by all rows from there. Sums are exact and scaled as in multiply.hpp, in the same order, so a row's result
// does not depend on how many rows are computed with it.
//
// Vector instructions per 32 columns × 16 outputs × 4 rows, as GCC 12 compiles it: dotprod has 128 of products, 64 of
// scaling and 18 of clearing and moving, so 61 % of the peak (unpacking for every 4 rows: 50 %). i8mm has 64, 64, 26
// and 8 of pairing activations, so it is 1.3 times as fast. For fewer rows unpacking costs i8mm what its products save,
// so they go the way of dotprod.
#pragma once

#include "multiply.hpp"

#if defined(__ARM_FEATURE_DOTPROD)

namespace quire {
namespace {

// Widening costs about as much as unpacking for 8 rows.
constexpr int64_t kFewestWideRows = 8;

#if defined(__ARM_FEATURE_MATMUL_INT8)

constexpr bool kWidensBytes = true;

// 32 columns of a panel in pairs of rows. Bytes 128 * c + 16 * p + 8 * i and on are columns 8 * c and on of row
// 2 * p + i; scales lie as a dot product's sums do: for each pair [row 2 * p, the same, row 2 * p + 1, the same].
template <bool kMinimum>
struct WideGroup {
    float scale[2 * kPanel];
    float minimum[2 * kPanel];
    int8_t q[kPanel * kGroup];
};

inline void store_twice(float* to, Floats value) {
    const auto lanes = bits_as<float32x4_t>(value);
    vst1q_f32(to, vzip1q_f32(lanes, lanes));
    vst1q_f32(to + 4, vzip2q_f32(lanes, lanes));
}

template <typename Group>
inline void widen(const Group& group, WideGroup<kHasMinimum<Group>>& wide) {
    for (int part = 0; part < kParts; part++) {
        store_twice(wide.scale + 8 * part, scale_of(group, part));
        if constexpr (kHasMinimum<Group>) store_twice(wide.minimum + 8 * part, minimum_of(group, part));
        for (int64_t chunk = 0; chunk < 4; chunk++) {
            const EightColumns columns = eight_columns(group, chunk, part);
            const auto first = bits_as<int32x4_t>(columns.first), last = bits_as<int32x4_t>(columns.last);
            int8_t* to = wide.q + 128 * chunk + 32 * part;
            vst1q_s8(to, vreinterpretq_s8_s32(vzip1q_s32(first, last)));
            vst1q_s8(to + 16, vreinterpretq_s8_s32(vzip2q_s32(first, last)));
        }
    }
}

// Numbers of two rows of activations as a dot product's sums want them: [first, second, first, second].
inline Floats both(float first, float second) {
    const float32x2_t pair = {first, second};
    return vcombine_f32(pair, pair);
}

// 4 rows of activations times all 16 of a panel, in sums of [2 rows of the panel][2 of activations].
template <bool kMinimum>
inline Tile<4, kParts> multiply_four(const WideGroup<kMinimum>* weights, int64_t groups, const Activations& x,
                                     int64_t first_row) {
    IntegerRows rows(x, first_row);
    Floats totals[8][2] = {};
    for (int64_t group = 0; group < groups; group++, weights++, rows.next()) {
        int32x4_t sums[8][2] = {};
        for (int64_t half = 0; half < 2; half++) {
            int64x2_t pairs[2][2];  // [8 columns][rows]
            for (int pair = 0; pair < 2; pair++) {
                const int64x2_t even = vreinterpretq_s64_s8(vld1q_s8(rows.columns[2 * pair] + 16 * half));
                const int64x2_t odd = vreinterpretq_s64_s8(vld1q_s8(rows.columns[2 * pair + 1] + 16 * half));
                pairs[0][pair] = vzip1q_s64(even, odd);
                pairs[1][pair] = vzip2q_s64(even, odd);
            }
            for (int part = 0; part < 8; part++) {
                for (int chunk = 0; chunk < 2; chunk++) {
                    const int8x16_t w = vld1q_s8(weights->q + 128 * (2 * half + chunk) + 16 * part);
                    sums[part][0] = vmmlaq_s32(sums[part][0], w, vreinterpretq_s8_s64(pairs[chunk][0]));
                    sums[part][1] = vmmlaq_s32(sums[part][1], w, vreinterpretq_s8_s64(pairs[chunk][1]));
                }
            }
        }
        for (int pair = 0; pair < 2; pair++) {
            const int row = 2 * pair;
            const Floats scales = both(rows.numbers[row].scale, rows.numbers[row + 1].scale);
            const Floats offsets = both(rows.numbers[row].sum, rows.numbers[row + 1].sum);
            for (int part = 0; part < 8; part++) {
                const Floats dots = vcvtq_f32_s32(sums[part][pair]);
                totals[part][pair] += dots * (load(weights->scale + 4 * part) * scales);
                if (kMinimum) totals[part][pair] += load(weights->minimum + 4 * part) * offsets;
            }
        }
    }
    Tile<4, kParts> tile;
    for (int row = 0; row < 4; row++) {
        for (int part = 0; part < kParts; part++) {
            const auto left = bits_as<float32x4_t>(totals[2 * part][row / 2]);
            const auto right = bits_as<float32x4_t>(totals[2 * part + 1][row / 2]);
            tile.out[row][part] = row % 2 == 0 ? vuzp1q_f32(left, right) : vuzp2q_f32(left, right);
        }
    }
    return tile;
}

template <bool kMinimum>
inline void multiply_wide_panel(const Matmul& matmul, int64_t panel, const WideGroup<kMinimum>* weights) {
    const int64_t groups = matmul.matrix->padded_columns() / kGroup;
    for (int64_t row = 0; row < matmul.rows; row += 4) {
        multiply_four(weights, groups, matmul.x, row).finish(matmul, panel, row, matmul.rows - row, 0);
    }
}

#else

constexpr bool kWidensBytes = false;  // they are as the matmuls take them

// 32 columns of a panel with their bytes as in Q8Group.
template <bool kMinimum>
struct WideGroup {
    float scale[kPanel];
    float minimum[kPanel];
    int8_t q[kPanel * kGroup];
};

inline Floats scale_of(const WideGroup<true>& group, int part) { return load(group.scale + kWidth * part); }
inline Floats minimum_of(const WideGroup<true>& group, int part) { return load(group.minimum + kWidth * part); }

inline EightColumns eight_columns(const WideGroup<true>& group, int64_t chunk, int part) {
    const int8_t* q = group.q + 128 * chunk + 4 * kWidth * part;
    return {load_bytes(q), load_bytes(q + 64)};
}

template <typename Group>
inline void widen(const Group& group, WideGroup<true>& wide) {
    for (int part = 0; part < kParts; part++) {
        store(wide.scale + kWidth * part, scale_of(group, part));
        store(wide.minimum + kWidth * part, minimum_of(group, part));
        for (int64_t chunk = 0; chunk < 4; chunk++) {
            const EightColumns columns = eight_columns(group, chunk, part);
            int8_t* to = wide.q + 128 * chunk + 4 * kWidth * part;
            std::memcpy(to, &columns.first, sizeof(columns.first));
            std::memcpy(to + 64, &columns.last, sizeof(columns.last));
        }
    }
}

inline void multiply_wide_panel(const Matmul& matmul, int64_t panel, const WideGroup<true>* weights) {
    const int64_t groups = matmul.matrix->padded_columns() / kGroup;
    for (int64_t row = 0; row < matmul.rows; row += 4) {
        for (int part = 0; part < kParts; part += 2) {
            Tile<4, 2> tile;
            tile.add_groups(weights, groups, matmul, row, part);
            tile.finish(matmul, panel, row, matmul.rows - row, part);
        }
    }
}

#endif

inline int64_t wide_panel_bytes(int64_t columns) {
    return round_up(columns, kGroup) / kGroup * static_cast<int64_t>(sizeof(WideGroup<true>));
}

template <typename Group>
inline void multiply_widened(const Matmul& matmul, int64_t first_panel, int64_t last_panel, uint8_t* scratch) {
    const int64_t groups = matmul.matrix->padded_columns() / kGroup;
    auto* wide = reinterpret_cast<WideGroup<kHasMinimum<Group>>*>(scratch);
    for (int64_t panel = first_panel; panel < last_panel; panel++) {
        const auto* packed = reinterpret_cast<const Group*>(matmul.matrix->panel(panel));
        for (int64_t group = 0; group < groups; group++) widen(packed[group], wide[group]);
        multiply_wide_panel(matmul, panel, wide);
    }
}

// Whether it did: few rows, and some layouts, are for multiply_panels.
inline bool multiply_wide(const Matmul& matmul, int64_t first_panel, int64_t last_panel, uint8_t* scratch) {
    if (matmul.x.format != Format::i8 || matmul.rows < kFewestWideRows) return false;
    if (matmul.matrix->layout == Layout::q4) {
        multiply_widened<Q4Group>(matmul, first_panel, last_panel, scratch);
        return true;
    }
    if (matmul.matrix->layout == Layout::mxfp4) {
        multiply_widened<Mxfp4Group>(matmul, first_panel, last_panel, scratch);
        return true;
    }
    if constexpr (kWidensBytes) multiply_widened<Q8Group>(matmul, first_panel, last_panel, scratch);
    return kWidensBytes;
}

}  // namespace
}  // namespace quire

#endif
