// Products on AMX, in tiles of 16 rows of activations × 16 rows of a panel.
//
// Integer layouts: the columns of one group at a time, because every group has its own scales; its 16 × 16 sums are
// exact, and what follows is the arithmetic of multiply.hpp in the same order, so a row's result does not depend on how
// many rows are computed with it. 16-bit layouts: bfloat16 tiles that sum in float32 over all columns, for any number of
// rows, for the same reason.
#pragma once

#include "multiply.hpp"

namespace quire {
namespace {

#if defined(__AMX_BF16__)

// Fewest rows of bytes that are faster in tiles than in vectors.
constexpr int64_t kFewestRowsInTiles = 8;

struct alignas(64) TileShapes {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

// Tiles belong to a thread while it multiplies. 0 to 3 hold sums, 4 and 5 activations, 6 and 7 weights.
struct TilesInUse {
    // Bytes of a row of activations, and rows of weights.
    TilesInUse(uint16_t activation_bytes, uint8_t weight_rows) {
        for (int tile = 0; tile < 8; tile++) {
            shapes.row_bytes[tile] = tile == 4 || tile == 5 ? activation_bytes : 64;
            shapes.rows[tile] = tile >= 6 ? weight_rows : 16;
        }
        // GCC 12 believes that only the first 8 bytes of the shapes are read, and would leave the others out
        asm volatile("" ::"r"(&shapes) : "memory");
        _tile_loadconfig(&shapes);
    }
    ~TilesInUse() { _tile_release(); }
    TilesInUse(const TilesInUse&) = delete;
    TilesInUse& operator=(const TilesInUse&) = delete;

    TileShapes shapes;
};

// --- integer layouts -------------------------------------------------------------------------------------------------

constexpr int64_t kGroupTileBytes = 8 * 64;  // 32 columns, 4 in each row of the tile

// A panel's nibbles as bytes, a tile a group.
inline void unpack_panel(const Q4Group* groups, int64_t count, uint8_t* to) {
    for (int64_t group = 0; group < count; group++, groups++) {
        for (int64_t chunk = 0; chunk < 4; chunk++, to += 128) {
            const Bytes packed = load_bytes(groups->q + 64 * chunk);
            const Bytes low = low_nibbles(packed), high = high_nibbles(packed);
            std::memcpy(to, &low, 64);
            std::memcpy(to + 64, &high, 64);
        }
    }
}

// One group's sums become part of the results of up to 16 rows. kRows is 16, or 0 for `rows` of them.
template <int kRows, bool kWithMinimum>
inline void add_group(const int32_t* sums, Floats scale, Floats minimum, const float* scales, const float* totals,
                      int64_t row_floats, int64_t rows, Tile<16, 1>& tile) {
    const int64_t count = kRows > 0 ? kRows : rows;
#pragma GCC unroll 16
    for (int64_t row = 0; row < count; row++) {
        Ints dots;
        std::memcpy(&dots, sums + row * 16, sizeof(dots));
        Floats& out = tile.out[row][0];
        out += __builtin_convertvector(dots, Floats) * (scale * scales[row * row_floats]);
        if (kWithMinimum) out += minimum * totals[row * row_floats];
    }
}

template <int kRows, bool kIsQ4>
inline void multiply_tile(const Product& product, int64_t panel, int64_t row, int64_t rows, const uint8_t* unpacked) {
    const Matrix& matrix = *product.matrix;
    const int64_t groups = matrix.padded_columns() / kGroup, stride = row_bytes(Format::i8, product.x.columns);
    const auto* q4 = reinterpret_cast<const Q4Group*>(matrix.panel(panel));
    const auto* q8 = reinterpret_cast<const Q8Group*>(matrix.panel(panel));
    const uint8_t* x = product.x.row(row);
    const auto* scales = reinterpret_cast<const float*>(x + groups * kGroup);
    const float* totals = scales + 2 * groups;
    Tile<16, 1> out;
    alignas(64) int32_t sums[2][16 * 16];
    const auto tile = [&](int64_t group) {
        int32_t* to = sums[group % 2];
        _tile_loadd(4, x + group * kGroup, stride);
        _tile_zero(0);
        if (kIsQ4) {
            _tile_loadd(6, unpacked + group * kGroupTileBytes, 64);
            _tile_dpbsud(0, 4, 6);
        } else {
            _tile_loadd(6, q8[group].q, 64);
            _tile_dpbssd(0, 4, 6);
        }
        _tile_stored(0, to, 64);
    };
    tile(0);
    for (int64_t group = 0; group < groups; group++) {
        if (group + 1 < groups) tile(group + 1);  // while the vectors below work on this one's sums
        const Floats scale = load_half(kIsQ4 ? q4[group].scale : q8[group].scale);
        const Floats minimum = kIsQ4 ? load_half(q4[group].minimum) : Floats{};
        add_group<kRows, kIsQ4>(sums[group % 2], scale, minimum, scales + group, totals + group, stride / 4, rows, out);
    }
    out.finish(product, panel, row, rows, 0);
}

inline void multiply_bytes_in_tiles(const Product& product, int64_t first, int64_t last, uint8_t* scratch) {
    const TilesInUse tiles(kGroup, 8);
    const Matrix& matrix = *product.matrix;
    const bool is_q4 = matrix.layout == Layout::q4;
    for (int64_t panel = first; panel < last; panel++) {
        if (is_q4) {
            const auto* groups = reinterpret_cast<const Q4Group*>(matrix.panel(panel));
            unpack_panel(groups, matrix.padded_columns() / kGroup, scratch);
        }
        int64_t row = 0;
        for (; row + 16 <= product.rows; row += 16) {
            is_q4 ? multiply_tile<16, true>(product, panel, row, 16, scratch)
                  : multiply_tile<16, false>(product, panel, row, 16, scratch);
        }
        if (row < product.rows) {
            is_q4 ? multiply_tile<0, true>(product, panel, row, product.rows - row, scratch)
                  : multiply_tile<0, false>(product, panel, row, product.rows - row, scratch);
        }
    }
}

// --- 16-bit layouts --------------------------------------------------------------------------------------------------

// Bytes of an expanded panel: for each pair of columns 16 rows of two bfloat16.
constexpr int64_t expanded_bytes(int64_t columns) { return round_up(columns, kGroup) * kPanel * 2; }

// Two columns of 16 rows, side by side in each row's 32 bits.
inline void store_pair(uint8_t* to, Floats even, Floats odd) {
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                                6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const auto both = bits_as<__m512i>(_mm512_cvtne2ps_pbh(bits_as<__m512>(odd), bits_as<__m512>(even)));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(interleave, both));
}

inline void expand_halves(const uint16_t* values, int64_t columns, Floats (*from_half)(const uint16_t*), uint8_t* to) {
    for (int64_t column = 0; column < columns; column += 2, to += 64) {
        store_pair(to, from_half(values + column * kPanel), from_half(values + (column + 1) * kPanel));
    }
}

// 32 rows of activations times two panels.
inline void tiles_2x2(const Product& product, int64_t row, const uint8_t* first, const uint8_t* second, float* out) {
    const int64_t stride = row_bytes(Format::bf16, product.x.columns);
    const uint8_t *above = product.x.row(row), *below = product.x.row(row + 16);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const int64_t steps = round_up(product.x.columns, kGroup) / kGroup;
    for (int64_t step = 0; step < steps; step++) {
        _tile_loadd(4, above + 64 * step, stride);
        _tile_loadd(6, first + 1024 * step, 64);
        _tile_loadd(7, second + 1024 * step, 64);
        _tile_loadd(5, below + 64 * step, stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, 128);
    _tile_stored(1, out + 16, 128);
    _tile_stored(2, out + 16 * 32, 128);
    _tile_stored(3, out + 16 * 32 + 16, 128);
}

// The same for the last 16 rows.
inline void tiles_1x2(const Product& product, int64_t row, const uint8_t* first, const uint8_t* second, float* out) {
    const int64_t stride = row_bytes(Format::bf16, product.x.columns);
    const uint8_t* above = product.x.row(row);
    _tile_zero(0);
    _tile_zero(1);
    const int64_t steps = round_up(product.x.columns, kGroup) / kGroup;
    for (int64_t step = 0; step < steps; step++) {
        _tile_loadd(4, above + 64 * step, stride);
        _tile_loadd(6, first + 1024 * step, 64);
        _tile_loadd(7, second + 1024 * step, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, out, 128);
    _tile_stored(1, out + 16, 128);
}

inline void multiply_halves_in_tiles(const Product& product, int64_t first, int64_t last, uint8_t* scratch) {
    const TilesInUse tiles(64, 16);
    const Matrix& matrix = *product.matrix;
    const int64_t size = expanded_bytes(matrix.columns);
    const auto from_half = matrix.layout == Layout::f16 ? load_half : load_brain;
    alignas(64) float sums[32 * 32];
    for (int64_t panel = first; panel < last; panel += 2) {
        const int64_t panels = std::min<int64_t>(2, last - panel);
        for (int64_t half = 0; half < panels; half++) {
            const auto* values = reinterpret_cast<const uint16_t*>(matrix.panel(panel + half));
            expand_halves(values, matrix.padded_columns(), from_half, scratch + half * size);
        }
        const uint8_t* second = panels == 2 ? scratch + size : scratch;
        for (int64_t row = 0; row < product.rows; row += 32) {
            const int64_t rows = std::min<int64_t>(32, product.rows - row);
            if (rows > 16) {
                tiles_2x2(product, row, scratch, second, sums);
            } else {
                tiles_1x2(product, row, scratch, second, sums);
            }
            for (int64_t half = 0; half < panels; half++) {
                Tile<32, 1> tile;
                for (int64_t index = 0; index < rows; index++) tile.out[index][0] = load(sums + index * 32 + half * kPanel);
                tile.finish(product, panel + half, row, rows, 0);
            }
        }
    }
}

#endif

}  // namespace
}  // namespace quire
