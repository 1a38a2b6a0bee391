// Matmuls of packed activations with a matrix, a panel of 16 rows at a time: the vector kernel for a few rows of
// activations and the tiled one for many are the same loop with more or fewer rows in registers.
#pragma once

#include <algorithm>

#include "../kernels.hpp"
#include "bytes.hpp"
#include "neon.hpp"

namespace quire {
namespace {

// Scales and minima of part `part` of a group; a type without minima has kHasMinimum false.
inline Floats scale_of(const Q4Group& group, int part) { return load_half(group.scale + kWidth * part); }
inline Floats scale_of(const Q8Group& group, int part) { return load_half(group.scale + kWidth * part); }
inline Floats scale_of(const Mxfp4Group& group, int part) { return load_exponents(group.exponent + kWidth * part); }
inline Floats minimum_of(const Q4Group& group, int part) { return load_half(group.minimum + kWidth * part); }
inline Floats minimum_of(const Mxfp4Group& group, int part) {
    return scale_of(group, part) * static_cast<float>(-kFloatsAbove);
}

// Whether these groups are a matrix's own, read from memory, rather than what was made of them.
template <typename Group>
constexpr bool kIsStored = kIsNibbles<Group> || std::is_same<Group, Q8Group>::value;

template <typename Group>
constexpr bool kHasMinimum = true;
template <>
constexpr bool kHasMinimum<Q8Group> = false;

// A group of neighbouring packed int8 rows. Rows that are multiplied together lie in one ByteGroup: one pointer to columns
// and one to numbers serve them all.
struct IntegerRows {
    const int8_t (*columns)[kGroup];
    const GroupNumbers* numbers;

    IntegerRows(const Activations& x, int64_t first_row) {
        const int64_t within = first_row % kRowTile;
        const ByteGroup* group = x.byte_groups(first_row - within);
        columns = group->columns + within;
        numbers = group->numbers + within;
    }

    // On to the next 32 columns.
    void next() {
        columns += sizeof(ByteGroup) / sizeof(*columns);
        numbers = reinterpret_cast<const GroupNumbers*>(reinterpret_cast<const uint8_t*>(numbers) + sizeof(ByteGroup));
    }
};

// Few rows take weights as fast as memory gives them, so they are asked for this early. What hardware fetches on its own
// ends with a page, and too soon: a Xeon in a virtual machine reads 1.7 times as fast this way.
constexpr int64_t kAhead = 16 * 1024;

template <size_t kBytes>
inline void fetch_ahead(const void* weights, const Reading& reading) {
    if (kBytes < 64 && reinterpret_cast<uintptr_t>(weights) % 64 != 0) return;  // the line has been asked for
    const uint8_t* ahead = reading.ahead(weights, kAhead);
    for (size_t byte = 0; byte < kBytes; byte += 64) __builtin_prefetch(ahead + byte, 0, 2);  // to the second cache
}

// kCount parts of a panel times kRows rows of activations: sets with few registers cannot hold a whole panel for many
// rows.
template <int kRows, int kCount>
struct Tile {
    Floats out[kRows][kCount] = {};

    template <typename Group>
    void add_groups(const Group* weights, int64_t groups, const Matmul& matmul, int64_t first_row, int first_part) {
        IntegerRows rows(matmul.x, first_row);
        const bool is_first = kIsStored<Group> && first_row == 0 && first_part == 0;
        Floats totals[kRows][kCount] = {};  // unlike the member, GCC keeps this in registers
        for (int64_t group = 0; group < groups; group++, weights++, rows.next()) {
            if (is_first) fetch_ahead<sizeof(Group)>(weights, matmul.reading);
            Ints sums[kRows][kCount];
            for (int row = 0; row < kRows; row++) {
                for (int part = 0; part < kCount; part++) sums[row][part] = begin_sums();
            }
            dot_group<kRows, kCount>(*weights, first_part, rows.columns, sums);
            for (int part = 0; part < kCount; part++) {
                const Floats scale = scale_of(*weights, first_part + part);
                for (int row = 0; row < kRows; row++) {
                    Floats dots = as_floats(sums[row][part]);
                    if constexpr (!kHasMinimum<Group> && kBytesBias != 0) dots -= kBytesBias * rows.numbers[row].count;
                    totals[row][part] += dots * (scale * rows.numbers[row].scale);
                    if constexpr (kHasMinimum<Group>) {
                        totals[row][part] += minimum_of(*weights, first_part + part) * rows.numbers[row].sum;
                    }
                }
            }
        }
        keep(totals);
    }

    // Weights that are floats of any width, times float activations.
    template <typename Element, typename Load>
    void add_columns(const Element* weights, const Matmul& matmul, int64_t first_row, int first_part,
                     Load load_weights) {
        const float* rows[kRows];
        for (int row = 0; row < kRows; row++) {
            rows[row] = reinterpret_cast<const float*>(matmul.x.row(first_row + row));
        }
        const int64_t columns = matmul.matrix->columns;
        const bool is_first = first_row == 0 && first_part == 0;
        Floats totals[kRows][kCount] = {};
        for (int64_t column = 0; column < columns; column++, weights += kPanel) {
            if (is_first) fetch_ahead<kPanel * sizeof(Element)>(weights, matmul.reading);
            for (int part = 0; part < kCount; part++) {
                const Floats value = load_weights(weights + kWidth * (first_part + part));
                for (int row = 0; row < kRows; row++) totals[row][part] += value * rows[row][column];
            }
        }
        keep(totals);
    }

    // Times activations in bytes.
    void add_bytes(const Matmul& matmul, int64_t panel, int64_t first_row, int first_part) {
        const uint8_t* data = matmul.matrix->panel(panel);
        const int64_t groups = matmul.matrix->padded_columns() / kGroup;
        switch (matmul.matrix->layout) {
            case Layout::q4:
                return add_groups(reinterpret_cast<const Q4Group*>(data), groups, matmul, first_row, first_part);
            case Layout::q8:
                return add_groups(reinterpret_cast<const Q8Group*>(data), groups, matmul, first_row, first_part);
            case Layout::mxfp4:
                return add_groups(reinterpret_cast<const Mxfp4Group*>(data), groups, matmul, first_row, first_part);
            default: return;  // comes in floats
        }
    }

    // Times activations in floats.
    void add_floats(const Matmul& matmul, int64_t panel, int64_t first_row, int first_part) {
        const uint8_t* data = matmul.matrix->panel(panel);
        const auto* floats = reinterpret_cast<const float*>(data);
        const auto* halves = reinterpret_cast<const uint16_t*>(data);
        switch (matmul.matrix->layout) {
            case Layout::f32: return add_columns(floats, matmul, first_row, first_part, load);
            case Layout::f16: return add_columns(halves, matmul, first_row, first_part, load_half);
            case Layout::bf16: return add_columns(halves, matmul, first_row, first_part, load_brain);
            default: return;  // comes in bytes
        }
    }

    // Writes the first `rows` rows.
    void finish(const Matmul& matmul, int64_t panel, int64_t first_row, int64_t rows, int first_part) const {
        const Matrix& matrix = *matmul.matrix;
        for (int part = 0; part < kCount; part++) {
            const int64_t output = panel * kPanel + kWidth * (first_part + part);
            Floats bias = {};
            if (matrix.bias != nullptr) {
                for (int64_t lane = 0; lane < kWidth && output + lane < matrix.rows; lane++) {
                    bias[lane] = matrix.bias[output + lane];
                }
            }
            for (int row = 0; row < kRows && row < rows; row++) {
                float* to = matmul.out + (first_row + row) * matmul.stride + output;
                const Floats value = out[row][part] * matrix.factor + bias;
                if (output + kWidth <= matrix.rows) {
                    store(to, value);
                } else {
                    for (int64_t lane = 0; output + lane < matrix.rows; lane++) to[lane] = value[lane];
                }
            }
        }
    }

private:
    void keep(const Floats (&totals)[kRows][kCount]) {
        for (int row = 0; row < kRows; row++) {
            for (int part = 0; part < kCount; part++) out[row][part] = totals[row][part];
        }
    }
};

// Rows of activations that are multiplied together where there are enough, in floats and in bytes.
#if defined(__AVX512F__)
constexpr int kFloatRows = 12, kByteRows = 8;
#elif defined(__AVX2__)
constexpr int kFloatRows = 4, kByteRows = 4;
#elif defined(__aarch64__)
constexpr int kFloatRows = 8, kByteRows = 8;
#else
constexpr int kFloatRows = 4, kByteRows = 4;
#endif

// Parts of a panel that fit the registers together with so many rows: in floats nothing but totals takes registers for
// long, in bytes also sums and columns do. More parts at once read a row's columns fewer times.
constexpr int float_parts(int rows) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    return rows > 2 ? 1 : kParts;
#else
    return rows > 2 ? std::min(2, kParts) : kParts;
#endif
}

constexpr int byte_parts(int rows) {
#if defined(__aarch64__)
    return rows > 5 ? 1 : rows > 2 ? 2 : kParts;
#else
    return float_parts(rows);
#endif
}

// One panel times kRows rows of activations.
template <int kRows>
inline void multiply_floats(const Matmul& matmul, int64_t panel, int64_t first_row) {
    constexpr int kCount = float_parts(kRows);
    for (int part = 0; part < kParts; part += kCount) {
        Tile<kRows, kCount> tile;
        tile.add_floats(matmul, panel, first_row, part);
        tile.finish(matmul, panel, first_row, kRows, part);
    }
}

template <int kRows>
inline void multiply_bytes(const Matmul& matmul, int64_t panel, int64_t first_row) {
    constexpr int kCount = byte_parts(kRows);
    for (int part = 0; part < kParts; part += kCount) {
        Tile<kRows, kCount> tile;
        tile.add_bytes(matmul, panel, first_row, part);
        tile.finish(matmul, panel, first_row, kRows, part);
    }
}

// The rows from `row` on, kRows or fewer, at once: each row more costs little where few drafts are verified, and what is
// made of a panel's weights serves all of them.
template <int kRows>
inline void multiply_last_bytes(const Matmul& matmul, int64_t panel, int64_t row) {
    if constexpr (kRows > 0) {
        if (matmul.rows - row == kRows) return multiply_bytes<kRows>(matmul, panel, row);
        multiply_last_bytes<kRows - 1>(matmul, panel, row);
    }
}

// One panel times the rows from `row` on, a multiple of 16.
inline void multiply_bytes_panel(const Matmul& matmul, int64_t panel, int64_t row = 0) {
    static_assert(kRowTile % kByteRows == 0, "rows of one ByteGroup");
    for (; row + kByteRows <= matmul.rows; row += kByteRows) multiply_bytes<kByteRows>(matmul, panel, row);
    multiply_last_bytes<kByteRows - 1>(matmul, panel, row);
}

inline void multiply_floats_panel(const Matmul& matmul, int64_t panel) {
    int64_t row = 0;
    for (; row + kFloatRows <= matmul.rows; row += kFloatRows) multiply_floats<kFloatRows>(matmul, panel, row);
    if constexpr (kFloatRows > 4) {
        for (; row + 4 <= matmul.rows; row += 4) multiply_floats<4>(matmul, panel, row);
    }
    for (; row + 2 <= matmul.rows; row += 2) multiply_floats<2>(matmul, panel, row);
    for (; row < matmul.rows; row++) multiply_floats<1>(matmul, panel, row);
}

inline void multiply_panels(const Matmul& matmul, int64_t first_panel, int64_t last_panel) {
    for (int64_t panel = first_panel; panel < last_panel; panel++) {
        if (matmul.x.format == Format::i8) {
            multiply_bytes_panel(matmul, panel);
        } else {
            multiply_floats_panel(matmul, panel);
        }
    }
}

// A row's code of a column, both within a group of 4 bits.
inline int code_at(const uint8_t* q, int64_t lane, int64_t column) {
    const uint8_t both = q[64 * (column / 8) + 4 * lane + column % 4];
    return column % 8 < 4 ? both & 0xf : both >> 4;
}

// The values of one row, for embeddings.
inline void matrix_row(const Matrix& matrix, int64_t row, float* out) {
    const uint8_t* data = matrix.panel(row / kPanel);
    const int64_t lane = row % kPanel;
    for (int64_t column = 0; column < matrix.columns; column++) {
        float value = 0;
        if (matrix.layout == Layout::q4) {
            const Q4Group& group = reinterpret_cast<const Q4Group*>(data)[column / kGroup];
            const auto q = static_cast<float>(code_at(group.q, lane, column % kGroup));
            value = float_of_half(group.scale[lane]) * q + float_of_half(group.minimum[lane]);
        } else if (matrix.layout == Layout::mxfp4) {
            const Mxfp4Group& group = reinterpret_cast<const Mxfp4Group*>(data)[column / kGroup];
            const auto scale = bits_as<float>(static_cast<uint32_t>(group.exponent[lane]) << 23);
            value = scale * kDoubledFloats[code_at(group.q, lane, column % kGroup)];
        } else if (matrix.layout == Layout::q8) {
            const Q8Group& group = reinterpret_cast<const Q8Group*>(data)[column / kGroup];
            const int64_t within = column % kGroup;
            value = float_of_half(group.scale[lane]) * group.q[64 * (within / 4) + 4 * lane + within % 4];
        } else if (matrix.layout == Layout::f32) {
            value = reinterpret_cast<const float*>(data)[column * kPanel + lane];
        } else {
            const uint16_t half = reinterpret_cast<const uint16_t*>(data)[column * kPanel + lane];
            value = matrix.layout == Layout::f16 ? float_of_half(half) : float_of_brain(half);
        }
        out[column] = value * matrix.factor;
    }
}

}  // namespace
}  // namespace quire
