// How matrices and activations lie in memory. Every kernel of every instruction set reads these and no others, so a
// matrix is packed once and its packed form may be shared between processes and machines of one byte order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

// Rows of a matrix (outputs) that are computed together. One step of a panel's integer layouts is 16 rows × 4
// columns = 64 bytes: one AVX-512 register or AMX tile row, two of AVX2, four of NEON.
constexpr int64_t kPanel = 16;

// Columns that share a scale.
constexpr int64_t kGroup = 32;

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// In which numbers a matrix is held.
enum class Layout : int { q4 = 0, q8 = 1, f32 = 2, f16 = 3, bf16 = 4 };

// 32 columns of a panel, in 4 bits each: value = scale * q + minimum.
// Byte 64 * c + 4 * r + j holds column 8 * c + j of row r in its low half and column 8 * c + 4 + j in its high half.
struct Q4Group {
    uint16_t scale[kPanel];  // float16
    uint16_t minimum[kPanel];
    uint8_t q[kPanel * kGroup / 2];
};

// 32 columns of a panel, in 8 bits each: value = scale * q. Byte 64 * c + 4 * r + j is column 4 * c + j of row r.
struct Q8Group {
    uint16_t scale[kPanel];
    int8_t q[kPanel * kGroup];
};

// Dense layouts are [columns][16 rows of the panel].

// Bytes of one panel of a matrix with `columns` (a multiple of 32) columns.
constexpr int64_t panel_bytes(Layout layout, int64_t columns) {
    switch (layout) {
        case Layout::q4: return columns / kGroup * static_cast<int64_t>(sizeof(Q4Group));
        case Layout::q8: return columns / kGroup * static_cast<int64_t>(sizeof(Q8Group));
        case Layout::f32: return columns * kPanel * 4;
        default: return columns * kPanel * 2;
    }
}

// A matrix [rows, columns] in panels, one after the other. What pads the last panel and the last group is zero.
struct Matrix {
    Layout layout;
    const uint8_t* data;
    int64_t rows;
    int64_t columns;
    float factor;       // all values are this many times what is stored: float16 scales have a narrow range
    const float* bias;  // [rows], or null

    int64_t panels() const { return round_up(rows, kPanel) / kPanel; }
    int64_t padded_columns() const { return round_up(columns, kGroup); }
    const uint8_t* panel(int64_t index) const { return data + index * panel_bytes(layout, padded_columns()); }
};

// In which numbers activations meet a matrix.
//   f32:  the columns themselves
//   i8:   int8 columns; then, each for all groups of 32, as floats: the scale, the sum of the group's int8 columns, and
//         that sum times the scale
//   bf16: bfloat16 columns, for 16 rows together as tiles take them: their first 32 columns, then the next 32, and so on
// Columns are padded with zeros to a multiple of 32.
enum class Format : int { f32 = 0, i8 = 1, bf16 = 2 };

constexpr int64_t row_bytes(Format format, int64_t columns) {
    const int64_t padded = round_up(columns, kGroup);
    switch (format) {
        case Format::f32: return round_up(padded * 4, 64);
        case Format::i8: return round_up(padded + padded / kGroup * 12, 64);
        default: return padded * 2;
    }
}

// No format takes more than this many bytes a row, f32 aside.
constexpr int64_t most_row_bytes(int64_t columns) { return row_bytes(Format::bf16, columns); }

// Bytes from 32 columns of a row to the next 32 in bf16.
constexpr int64_t kBrainStep = 16 * 64;

// Bytes from the first row to where row `index` begins.
constexpr int64_t row_offset(Format format, int64_t columns, int64_t index) {
    if (format != Format::bf16) return index * row_bytes(format, columns);
    return index / 16 * 16 * row_bytes(format, columns) + index % 16 * 64;
}

// Packed rows of activations. Those in bf16 have room for a multiple of 16.
struct Activations {
    Format format;
    const uint8_t* data;
    int64_t columns;

    const uint8_t* row(int64_t index) const { return data + row_offset(format, columns, index); }
};

// In which numbers keys and values are kept.
enum class KVType : int { f32 = 0, f16 = 1, bf16 = 2 };

}  // namespace quire
