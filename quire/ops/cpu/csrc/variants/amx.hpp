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
constexpr int64_t kFewestRowsInTiles = 12;

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

// Bytes from one group's tile of weights to the next: nibbles are unpacked first, bytes are used where they are.
template <typename Group>
constexpr int64_t tile_step() {
    return kIsNibbles<Group> ? kGroupTileBytes : static_cast<int64_t>(sizeof(Group));
}

inline const uint8_t* bytes_of_panel(const Q4Group* groups, int64_t count, const Reading& reading, uint8_t* scratch) {
    uint8_t* to = scratch;
    for (int64_t group = 0; group < count; group++, groups++) {
        fetch_ahead<sizeof(Q4Group)>(groups, reading);
        for (int64_t chunk = 0; chunk < 4; chunk++, to += 128) {
            const Bytes packed = load_bytes(groups->q + 64 * chunk);
            const Bytes low = low_nibbles(packed), high = high_nibbles(packed);
            std::memcpy(to, &low, 64);
            std::memcpy(to + 64, &high, 64);
        }
    }
    return scratch;
}

inline const uint8_t* bytes_of_panel(const Q8Group* groups, int64_t count, const Reading& reading, uint8_t*) {
    for (int64_t group = 0; group < count; group++) fetch_ahead<sizeof(Q8Group)>(groups + group, reading);
    return reinterpret_cast<const uint8_t*>(groups->q);
}

// 16 rows of activations as tiles want them: for every group the rows' bytes, scales, and scales times sums together.
struct RowTile {
    uint8_t* bytes;  // [groups][16][32]
    float* scales;   // [groups][16]
    float* sums;     // [groups][16]

    RowTile(uint8_t* scratch, int64_t groups)
        : bytes(scratch),
          scales(reinterpret_cast<float*>(scratch + groups * kTileBytes)),
          sums(scales + groups * 16) {}

    static constexpr int64_t kTileBytes = 16 * kGroup;
    static constexpr int64_t scratch(int64_t groups) { return groups * (kTileBytes + 2 * 16 * 4); }

    void read(const Product& product, int64_t row, int64_t rows, int64_t groups) const {
        for (int64_t index = 0; index < rows; index++) {
            const uint8_t* from = product.x.row(row + index);
            const auto* numbers = reinterpret_cast<const float*>(from + groups * kGroup);
            for (int64_t group = 0; group < groups; group++) {
                std::memcpy(bytes + group * kTileBytes + index * kGroup, from + group * kGroup, kGroup);
                scales[group * 16 + index] = numbers[group];
                sums[group * 16 + index] = numbers[2 * groups + group];
            }
        }
        for (int64_t index = rows; index < 16; index++) {  // computed with whatever is there, and left out at the end
            for (int64_t group = 0; group < groups; group++) scales[group * 16 + index] = sums[group * 16 + index] = 0;
        }
    }
};

// Tiles of sums at once. More would fill the window in which a core finds the vectors to work on meanwhile.
constexpr int64_t kGroupsAhead = 2;

// The sums of one group in tile `out`. A macro, because intrinsics take tiles as literals.
#define QUIRE_SUM_GROUP(out, x_tile, weights_tile, group)                             \
    _tile_loadd(x_tile, x + (group) * RowTile::kTileBytes, kGroup);                   \
    _tile_loadd(weights_tile, weights + (group) * tile_step<Group>(), 64);            \
    _tile_zero(out);                                                                  \
    if (kIsNibbles<Group>) {                                                          \
        _tile_dpbsud(out, x_tile, weights_tile);                                      \
    } else {                                                                          \
        _tile_dpbssd(out, x_tile, weights_tile);                                      \
    }

// The sums of `count` groups, one or two, 16 rows × 16 rows of the panel each.
template <typename Group>
inline void sum_groups(const uint8_t* x, const uint8_t* weights, int64_t count, int32_t* sums) {
    QUIRE_SUM_GROUP(0, 4, 6, 0)
    if (count > 1) {
        QUIRE_SUM_GROUP(1, 5, 7, 1)
    }
    _tile_stored(0, sums, 64);
    if (count > 1) _tile_stored(1, sums + 256, 64);
}

#undef QUIRE_SUM_GROUP

// One group's sums become part of the results, as in multiply.hpp.
template <typename Group>
inline void add_group(const int32_t* sums, const Group& group, const float* scales, const float* totals,
                      Floats (&out)[16]) {
    const Floats scale = scale_of(group, 0);
#pragma GCC unroll 16
    for (int64_t row = 0; row < 16; row++) {
        Ints dots;
        std::memcpy(&dots, sums + row * 16, sizeof(dots));
        out[row] += __builtin_convertvector(dots, Floats) * (scale * scales[row]);
        if constexpr (kHasMinimum<Group>) out[row] += minimum_of(group, 0) * totals[row];
    }
}

// Panels times the same 16 rows of activations. `weights` has the bytes of each panel.
template <typename Group>
inline void multiply_row_tile(const Product& product, int64_t first_panel, int64_t num_panels,
                              const uint8_t* const* weights, int64_t row, int64_t rows, const RowTile& x) {
    const Matrix& matrix = *product.matrix;
    const int64_t groups = matrix.padded_columns() / kGroup;
    alignas(64) int32_t sums[2][kGroupsAhead * 256];
    int32_t *ready = sums[0], *coming = sums[1];
    sum_groups<Group>(x.bytes, weights[0], std::min(kGroupsAhead, groups), ready);
    for (int64_t panel = 0; panel < num_panels; panel++) {
        const auto* packed = reinterpret_cast<const Group*>(matrix.panel(first_panel + panel));
        Floats out[16] = {};  // only ever indexed by constants, so that it stays in registers
        for (int64_t first = 0; first < groups; first += kGroupsAhead) {
            // tiles take long, so the next groups are on their way while vectors work on these
            const int64_t next = first + kGroupsAhead;
            if (next < groups) {
                const uint8_t* bytes = weights[panel] + next * tile_step<Group>();
                const uint8_t* from = x.bytes + next * RowTile::kTileBytes;
                sum_groups<Group>(from, bytes, std::min(kGroupsAhead, groups - next), coming);
            } else if (panel + 1 < num_panels) {
                sum_groups<Group>(x.bytes, weights[panel + 1], std::min(kGroupsAhead, groups), coming);
            }
            const float *scales = x.scales + 16 * first, *totals = x.sums + 16 * first;
            add_group(ready, packed[first], scales, totals, out);
            if (first + 1 < groups) add_group(ready + 256, packed[first + 1], scales + 16, totals + 16, out);
            std::swap(ready, coming);
        }
        Tile<16, 1> tile;
#pragma GCC unroll 16
        for (int index = 0; index < 16; index++) tile.out[index][0] = out[index];
        tile.finish(product, first_panel + panel, row, rows, 0);
    }
}

// Panels whose bytes stay in the second cache while all rows pass by.
constexpr int64_t kMostPanelsAtOnce = 32, kPanelsBytes = 256 * 1024;

constexpr int64_t panels_at_once(int64_t groups) {
    return std::clamp<int64_t>(kPanelsBytes / (groups * kGroupTileBytes), 1, kMostPanelsAtOnce);
}

constexpr int64_t bytes_scratch(int64_t columns) {
    const int64_t groups = round_up(columns, kGroup) / kGroup;
    return panels_at_once(groups) * groups * kGroupTileBytes + RowTile::scratch(groups);
}

template <typename Group>
inline void multiply_bytes_in_tiles(const Product& product, int64_t first, int64_t last, uint8_t* scratch) {
    const TilesInUse tiles(kGroup, 8);
    const Matrix& matrix = *product.matrix;
    const int64_t groups = matrix.padded_columns() / kGroup, size = groups * kGroupTileBytes;
    const RowTile x(scratch + panels_at_once(groups) * size, groups);
    // One tile of rows has all of a panel's use at once: its bytes need not leave the first cache.
    const bool is_one_tile = product.rows <= 16;
    const int64_t most = is_one_tile ? std::min<int64_t>(2, panels_at_once(groups)) : panels_at_once(groups);
    if (is_one_tile) x.read(product, 0, product.rows, groups);
    const uint8_t* weights[kMostPanelsAtOnce];
    for (; first < last; first += most) {
        const int64_t panels = std::min(most, last - first);
        for (int64_t panel = 0; panel < panels; panel++) {
            const auto* packed = reinterpret_cast<const Group*>(matrix.panel(first + panel));
            weights[panel] = bytes_of_panel(packed, groups, product.reading, scratch + panel * size);
        }
        for (int64_t row = 0; row < product.rows; row += 16) {
            const int64_t rows = std::min<int64_t>(16, product.rows - row);
            if (!is_one_tile) x.read(product, row, rows, groups);
            multiply_row_tile<Group>(product, first, panels, weights, row, rows, x);
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
