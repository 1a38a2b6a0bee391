// Products of bytes on AMX, in tiles of 16 rows of activations × 16 rows of a panel, the columns of one group at a time,
// because every group has its own scales. Its 16 × 16 sums are exact, and what follows is the arithmetic of multiply.hpp
// in the same order, so a row's result does not depend on how many rows are computed with it.
#pragma once

#include "amx.hpp"
#include "multiply.hpp"

namespace quire {
namespace {

#if defined(__AMX_BF16__)

// 0 to 3 hold sums, 4 and 5 the columns of a group, 6 and 7 its weights, four of a row in a word.
inline TileShapes byte_tiles() {
    TileShapes shapes = whole_tiles();
    shapes.row_bytes[4] = shapes.row_bytes[5] = kGroup;
    shapes.rows[6] = shapes.rows[7] = 8;
    return shapes;
}

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
    const TilesInUse tiles(byte_tiles());
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

#endif

}  // namespace
}  // namespace quire
