// The tile registers of AMX: eight of up to 16 rows of 64 bytes.
#pragma once

#if defined(__AMX_BF16__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace quire {
namespace {

#if defined(__AMX_BF16__)

struct alignas(64) TileShapes {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

// Fewest rows of packed weights' matmuls that are faster in tiles than in vectors.
constexpr int64_t kFewestRowsInTiles = 9;

// Tiles belong to a thread while it multiplies.
struct TilesInUse {
    explicit TilesInUse(const TileShapes& given) : shapes(given) {
        // GCC 12 believes that only the first 8 bytes of the shapes are read, and would leave the others out
        asm volatile("" ::"r"(&shapes) : "memory");
        _tile_loadconfig(&shapes);
    }
    ~TilesInUse() { _tile_release(); }
    TilesInUse(const TilesInUse&) = delete;
    TilesInUse& operator=(const TilesInUse&) = delete;

    TileShapes shapes;
};

// Whole tiles. For matmuls 0 to 3 hold sums, 4 and 5 activations, 6 and 7 weights.
inline TileShapes whole_tiles() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; tile++) {
        shapes.row_bytes[tile] = 64;
        shapes.rows[tile] = 16;
    }
    return shapes;
}

// Has 16 lines of 64 bytes, a tile, come to the first cache. Where another thread of the core is at work, loading a tile
// from the second cache holds up the matmuls after it, and it costs nothing to ask for it between matmuls: four
// matmuls and four loads take 200 cycles instead of 285. Asked for all at once, after the matmuls, it gains nothing.
inline void fetch_tile(const uint8_t* tile) {
    for (int64_t line = 0; line < 16; line++) __builtin_prefetch(tile + 64 * line, 0, 3);
}

#endif

}  // namespace
}  // namespace quire
