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
enum class Layout : int { q4 = 0, q8 = 1, f32 = 2, f16 = 3, bf16 = 4, mxfp4 = 5 };

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

// 32 columns of a panel, in floats of 4 bits (E2M1) each: value = scale * kDoubledFloats[code]. A matrix's factor halves
// what these are twice as much as. Codes lie as those of Q4Group.
struct Mxfp4Group {
    uint8_t exponent[kPanel];  // scale = 2 ** (exponent - 127); 0 stands for 0, and 255 for infinity
    uint8_t q[kPanel * kGroup / 2];
};

// What the codes of E2M1 stand for, times two.
constexpr int8_t kDoubledFloats[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Dense layouts are [columns][16 rows of the panel].

// Bytes of one panel of a matrix with `columns` (a multiple of 32) columns.
constexpr int64_t panel_bytes(Layout layout, int64_t columns) {
    switch (layout) {
        case Layout::q4: return columns / kGroup * static_cast<int64_t>(sizeof(Q4Group));
        case Layout::q8: return columns / kGroup * static_cast<int64_t>(sizeof(Q8Group));
        case Layout::mxfp4: return columns / kGroup * static_cast<int64_t>(sizeof(Mxfp4Group));
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
//   i8:   int8 columns with their scales, for 16 rows together as tiles take them: a ByteGroup for each 32 columns
//   bf16: bfloat16 columns, for 16 rows together likewise: their first 32 columns, then the next 32, and so on
// Columns are padded with zeros to a multiple of 32.
enum class Format : int { f32 = 0, i8 = 1, bf16 = 2 };

// Rows of activations that lie together, as many as a tile has.
constexpr int64_t kRowTile = 16;

// What a row needs to know of 32 columns in int8.
struct GroupNumbers {
    float scale;
    float count;  // the sum of the int8 columns
    float sum;    // that times the scale
};

// 32 columns of 16 rows of activations. A row of it is in two cache lines, so a single row reads little more than its own.
struct ByteGroup {
    int8_t columns[kRowTile][kGroup];
    GroupNumbers numbers[kRowTile];
};
static_assert(sizeof(ByteGroup) % 64 == 0, "a tile's rows must not lie across cache lines");

constexpr int64_t row_bytes(Format format, int64_t columns) {
    const int64_t padded = round_up(columns, kGroup);
    switch (format) {
        case Format::f32: return round_up(padded * 4, 64);
        case Format::i8: return padded / kGroup * static_cast<int64_t>(sizeof(ByteGroup)) / kRowTile;
        default: return padded * 2;
    }
}

// No format takes more than this many bytes a row, f32 aside.
constexpr int64_t most_row_bytes(int64_t columns) { return row_bytes(Format::bf16, columns); }

// Bytes from 32 columns of a row to the next 32 in bf16.
constexpr int64_t kBrainStep = kRowTile * 64;

// Bytes from the first row to where the columns of row `index` begin.
constexpr int64_t row_offset(Format format, int64_t columns, int64_t index) {
    if (format == Format::f32) return index * row_bytes(format, columns);
    const int64_t tile = index / kRowTile * kRowTile * row_bytes(format, columns);
    return tile + index % kRowTile * (format == Format::i8 ? kGroup : 64);
}

// Packed rows of activations. There is room for a multiple of 16, f32 aside.
struct Activations {
    Format format;
    const uint8_t* data;
    int64_t columns;

    const uint8_t* row(int64_t index) const { return data + row_offset(format, columns, index); }
    // The 16 rows from `first_row` (a multiple of 16) on, in i8.
    const ByteGroup* byte_groups(int64_t first_row) const {
        return reinterpret_cast<const ByteGroup*>(row(first_row));
    }
};

// In which numbers keys and values are kept; i8 with a scale for each vector.
enum class KVType : int { f32 = 0, f16 = 1, bf16 = 2, i8 = 3 };

constexpr int64_t kv_bytes(KVType type) { return type == KVType::f32 ? 4 : type == KVType::i8 ? 1 : 2; }

}  // namespace quire
