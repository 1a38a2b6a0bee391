// Matmuls of bytes on AMX, in tiles of 16 rows of activations × 16 rows of a panel, the columns of one group at a time,
// because every group has its own scales. Its 16 × 16 sums are exact, and what follows is the arithmetic of multiply.hpp
// in the same order, so a row's result does not depend on how many rows are computed with it.
//
// Tiles and vectors work at the same time, on different groups: a tile's sums take a hundred cycles to come. They are
// therefore begun one group before they are stored, and stored one group before vectors take them up. A core that has
// to find this overlap by itself does so only while no neighbour shares its window.
#pragma once

#include "amx.hpp"
#include "multiply.hpp"

namespace quire {
namespace {

#if defined(__AMX_BF16__)

// Tile 0 holds sums, 1 the columns of a group, 2 its weights, four of a row in a word.
inline TileShapes byte_tiles() {
    TileShapes shapes = whole_tiles();
    shapes.row_bytes[1] = kGroup;
    shapes.rows[2] = 8;
    return shapes;
}

constexpr int64_t kGroupTileBytes = 8 * 64;  // 32 columns, 4 in each row of the tile

template <typename Group>
inline void unpack(const Group& group, uint8_t* to) {
    for (int64_t chunk = 0; chunk < 4; chunk++, to += 128) {
        const EightColumns columns = eight_columns(group, chunk, 0);
        std::memcpy(to, &columns.first, 64);
        std::memcpy(to + 64, &columns.last, 64);
    }
}

// The matmuls of tiles in their order: for each panel all rows, for these all groups.
template <typename Group>
class TileMatmuls {
public:
    TileMatmuls(const Matmul& matmul, int64_t row_tiles, int64_t first_panel, int64_t last_panel, uint8_t* unpacked)
        : reading_(matmul.reading),
          groups_(matmul.matrix->padded_columns() / kGroup),
          weights_(reinterpret_cast<const Group*>(matmul.matrix->panel(first_panel))),
          end_(reinterpret_cast<const Group*>(matmul.matrix->panel(last_panel))),
          first_rows_(matmul.x.byte_groups(0)),
          x_(first_rows_),
          row_tiles_(row_tiles),
          unpacked_(unpacked) {
        bring();
    }

    // Begins the next matmul, in tile 0. Does nothing after the last.
    void begin() {
        if (weights_ == end_) return;
        _tile_loadd(1, x_->columns, kGroup);
        _tile_loadd(2, bytes_, 64);
        _tile_zero(0);
        if (kIsNibbles<Group>) {
            _tile_dpbsud(0, 1, 2);
        } else {
            _tile_dpbssd(0, 1, 2);
        }
        advance();
        bring();
    }

private:
    void advance() {
        x_++;
        if (++group_ < groups_) return;
        group_ = 0;
        if (++row_tile_ < row_tiles_) return;
        row_tile_ = 0;
        x_ = first_rows_;
        weights_ += groups_;
    }

    // The first rows that meet a panel bring its weights, each group one matmul early: then nobody waits for them.
    // Nibbles are unpacked, bytes used where they are.
    void bring() {
        if (weights_ == end_) return;
        const Group& group = weights_[group_];
        const bool is_new = row_tile_ == 0;
        if (is_new) fetch_ahead<sizeof(Group)>(&group, reading_);
        if constexpr (kIsNibbles<Group>) {
            // what no other rows will meet must not fill the first cache
            uint8_t* to = unpacked_ + (row_tiles_ == 1 ? group_ % 4 : group_) * kGroupTileBytes;
            if (is_new) unpack(group, to);
            bytes_ = to;
        } else {
            bytes_ = reinterpret_cast<const uint8_t*>(group.q);
        }
    }

    const Reading reading_;
    const int64_t groups_;
    const Group* weights_;  // of the panel
    const Group* const end_;
    const ByteGroup* const first_rows_;
    const ByteGroup* x_;  // a tile's rows lie behind those of the one before
    const int64_t row_tiles_;
    int64_t group_ = 0, row_tile_ = 0;
    uint8_t* const unpacked_;
    const uint8_t* bytes_ = nullptr;
};

// One group's sums become part of the results, as in multiply.hpp.
template <int kRows, typename Group>
inline void add_group(const int32_t* sums, const Group& group, const GroupNumbers* numbers, Floats (&out)[kRows]) {
    const Floats scale = scale_of(group, 0);
#pragma GCC unroll 16
    for (int64_t row = 0; row < kRows; row++) {
        Ints dots;
        std::memcpy(&dots, sums + row * 16, sizeof(dots));
        out[row] += __builtin_convertvector(dots, Floats) * (scale * numbers[row].scale);
        if constexpr (kHasMinimum<Group>) out[row] += minimum_of(group, 0) * numbers[row].sum;
    }
}

// Sums of the tiles' matmuls on their way to the vectors.
struct alignas(64) TileSums {
    int32_t buffers[2][16 * 16];
    int32_t *ready = buffers[0], *coming = buffers[1];

    void store() { _tile_stored(0, coming, 64); }
    void swap() { std::swap(ready, coming); }
};

// A panel times kRows rows from `row` on. Behind those may be any bits, which vectors leave alone: floats that are too
// small to be normal would take a hundred times as long.
template <int kRows, typename Group>
inline void add_matmuls(TileMatmuls<Group>& tile_matmuls, TileSums& sums, const Matmul& matmul, int64_t panel,
                        int64_t row) {
    for (int64_t index = row; index < row + kRows; index++) {  // memory that is about to be written comes meanwhile
        __builtin_prefetch(matmul.out + index * matmul.stride + panel * kPanel, 1);
    }
    const auto* weights = reinterpret_cast<const Group*>(matmul.matrix->panel(panel));
    const auto* const end = reinterpret_cast<const Group*>(matmul.matrix->panel(panel + 1));
    const ByteGroup* x = matmul.x.byte_groups(row);
    Floats out[kRows] = {};  // only ever indexed by constants, so that it stays in registers
    for (; weights < end; weights++, x++) {
        sums.store();
        tile_matmuls.begin();
        add_group(sums.ready, *weights, x->numbers, out);
        sums.swap();
    }
    Tile<kRows, 1> tile;
#pragma GCC unroll 16
    for (int index = 0; index < kRows; index++) tile.out[index][0] = out[index];
    tile.finish(matmul, panel, row, kRows, 0);
}

// The same for as many rows as are left, kRows or fewer.
template <int kRows, typename Group>
inline void add_last_matmuls(TileMatmuls<Group>& tile_matmuls, TileSums& sums, const Matmul& matmul, int64_t panel,
                             int64_t row) {
    if constexpr (kRows >= kFewestRowsInTiles) {
        if (matmul.rows - row == kRows) return add_matmuls<kRows>(tile_matmuls, sums, matmul, panel, row);
        add_last_matmuls<kRows - 1>(tile_matmuls, sums, matmul, panel, row);
    }
}

constexpr int64_t bytes_scratch(int64_t columns) { return round_up(columns, kGroup) / kGroup * kGroupTileBytes; }

template <typename Group>
inline void multiply_bytes_in_tiles(const Matmul& matmul, int64_t first, int64_t last, uint8_t* scratch) {
    const TilesInUse tiles(byte_tiles());
    // the last rows are faster in vectors if they are few
    const int64_t left = matmul.rows % kRowTile;
    const int64_t rows = left < kFewestRowsInTiles ? matmul.rows - left : matmul.rows;
    TileMatmuls<Group> tile_matmuls(matmul, round_up(rows, kRowTile) / kRowTile, first, last, scratch);
    TileSums sums;
    tile_matmuls.begin();
    sums.store();
    sums.swap();
    tile_matmuls.begin();
    for (int64_t panel = first; panel < last; panel++) {
        int64_t row = 0;
        for (; row + kRowTile <= rows; row += kRowTile) add_matmuls<16>(tile_matmuls, sums, matmul, panel, row);
        if (row < rows) add_last_matmuls<kRowTile - 1>(tile_matmuls, sums, matmul, panel, row);
        multiply_bytes_panel(matmul, panel, rows);
    }
}

#endif

}  // namespace
}  // namespace quire
