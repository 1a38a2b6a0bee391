// Attention of many rows in bfloat16 tiles of AMX, for caches in bfloat16: queries and weights are rounded to it, sums are
// float32. A block's keys are turned and its values paired once for all rows.
#pragma once

#include "amx.hpp"
#include "softmax.hpp"

namespace quire {
namespace {

#if defined(__AMX_BF16__)

constexpr int64_t kChunk = 32;         // bfloat16 numbers in a row of a tile
constexpr int64_t kTileBytes = 1024;   // 16 rows of 64 bytes
constexpr int64_t kTile = 16;          // rows of a tile, and its columns of float32 or of pairs

inline bool fits_tiles(const AttentionTask& task) {
    return task.cache->type == KVType::bf16 && task.cache->head_dim % kChunk == 0 && task.value_dim % kChunk == 0;
}

// 16 keys of 32 numbers as tiles want their second factor: for each pair of columns the keys' two numbers.
inline void turn(const uint8_t* const* keys, int64_t at, uint8_t* tile) {
    const auto words = [&](int key) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys[key] + at)); };
    for (int64_t quarter = 0; quarter < 4; quarter++, at += 16, tile += 256) {
        __m512i rows[4];  // key 4 * lane + i, four words of it in a lane
        for (int i = 0; i < 4; i++) {
            rows[i] = _mm512_castsi128_si512(words(i));
            rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x00f0, words(4 + i));
            rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x0f00, words(8 + i));
            rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0xf000, words(12 + i));
        }
        const __m512i low = _mm512_unpacklo_epi32(rows[0], rows[1]), next_low = _mm512_unpacklo_epi32(rows[2], rows[3]);
        const __m512i high = _mm512_unpackhi_epi32(rows[0], rows[1]), next_high = _mm512_unpackhi_epi32(rows[2], rows[3]);
        _mm512_store_si512(tile, _mm512_unpacklo_epi64(low, next_low));
        _mm512_store_si512(tile + 64, _mm512_unpackhi_epi64(low, next_low));
        _mm512_store_si512(tile + 128, _mm512_unpacklo_epi64(high, next_high));
        _mm512_store_si512(tile + 192, _mm512_unpackhi_epi64(high, next_high));
    }
}

// Tiles of a block's keys: [16 keys][32 columns], turned.
inline void turn_keys(const KVRows& block, const AttentionRoom& room) {
    auto* to = reinterpret_cast<uint8_t*>(room.keys);
    for (int64_t key = 0; key < block.count; key += kTile) {
        for (int64_t column = 0; column < room.dim; column += kChunk, to += kTileBytes) {
            turn(block.keys + key, 2 * column, to);
        }
    }
}

// Tiles of a block's values: [32 keys][16 columns], two keys side by side. What one instruction can pair goes into one
// tile: of 32 columns the first four of every eight into the first tile, the others into the second.
inline void pair_values(const KVRows& block, const AttentionRoom& room) {
    auto* const tiles = reinterpret_cast<uint8_t*>(room.values);
    for (int64_t key = 0; key < round_up(block.count, kChunk); key += 2) {
        const uint8_t* even = key < block.count ? block.values[key] : room.zeros;
        const uint8_t* odd = key + 1 < block.count ? block.values[key + 1] : room.zeros;
        uint8_t* to = tiles + key / kChunk * (room.value_dim / kTile) * kTileBytes + key % kChunk / 2 * 64;
        for (int64_t column = 0; column < room.value_dim; column += kChunk, to += 2 * kTileBytes) {
            const __m512i a = _mm512_loadu_si512(even + 2 * column), b = _mm512_loadu_si512(odd + 2 * column);
            _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512(to + kTileBytes, _mm512_unpackhi_epi16(a, b));
        }
    }
}

// A row's weights of a block, rounded, in place of the scores they came from.
inline void narrow_weights(const AttentionRoom& room, int64_t row, int64_t count) {
    float* weights = room.scores + row * kBlock;
    for (int64_t key = round_up(count, kTile); key < round_up(count, kChunk); key += kTile) store(weights + key, Floats{});
    auto* narrow = reinterpret_cast<uint8_t*>(weights);
    for (int64_t key = 0; key < count; key += kChunk, narrow += 64) {
        const auto low = bits_as<__m512>(load(weights + key)), high = bits_as<__m512>(load(weights + key + kTile));
        _mm512_store_si512(narrow, bits_as<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
}

// Tiles 0 to 3 hold scores or mixed values, 4 and 5 queries or weights, 6 and 7 keys or values.

// 16 rows of `first` (stride bytes apart) times the tiles at `second`, in chunks of 32 columns each kept `step` bytes
// apart: what follows in tiles 0 to 3.
inline void multiply_four(const uint8_t* first, int64_t stride, const uint8_t* second, int64_t apart, int64_t step,
                          int64_t chunks) {
    for (int64_t chunk = 0; chunk < chunks; chunk++, second += step) {
        _tile_loadd(4, first + 64 * chunk, stride);
        _tile_loadd(6, second, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, second + apart, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(6, second + 2 * apart, 64);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(7, second + 3 * apart, 64);
        _tile_dpbf16ps(3, 4, 7);
    }
}

inline void score_tile(const AttentionRoom& room, int64_t row) {
    const auto* queries = reinterpret_cast<const uint8_t*>(room.queries) + row * room.dim * 2;
    const int64_t chunks = room.dim / kChunk;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    multiply_four(queries, room.dim * 2, reinterpret_cast<const uint8_t*>(room.keys), chunks * kTileBytes, kTileBytes,
                  chunks);
    float* scores = room.scores + row * kBlock;
    _tile_stored(0, scores, kBlock * 4);
    _tile_stored(1, scores + kTile, kBlock * 4);
    _tile_stored(2, scores + 2 * kTile, kBlock * 4);
    _tile_stored(3, scores + 3 * kTile, kBlock * 4);
}

// Four tiles of columns at a time, and what is left one by one.
inline void mix_tile(const AttentionRoom& room, int64_t row, int64_t count) {
    const auto* weights = reinterpret_cast<const uint8_t*>(room.scores + row * kBlock);
    const auto* values = reinterpret_cast<const uint8_t*>(room.values);
    const int64_t tiles = room.value_dim / kTile, chunks = round_up(count, kChunk) / kChunk, stride = room.value_dim * 4;
    float* mixed = room.mixed + row * room.value_dim;
    int64_t tile = 0;
    for (; tile + 4 <= tiles; tile += 4, mixed += 4 * kTile) {
        _tile_loadd(0, mixed, stride);
        _tile_loadd(1, mixed + kTile, stride);
        _tile_loadd(2, mixed + 2 * kTile, stride);
        _tile_loadd(3, mixed + 3 * kTile, stride);
        multiply_four(weights, kBlock * 4, values + tile * kTileBytes, kTileBytes, tiles * kTileBytes, chunks);
        _tile_stored(0, mixed, stride);
        _tile_stored(1, mixed + kTile, stride);
        _tile_stored(2, mixed + 2 * kTile, stride);
        _tile_stored(3, mixed + 3 * kTile, stride);
    }
    for (; tile < tiles; tile++, mixed += kTile) {
        _tile_loadd(0, mixed, stride);
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            _tile_loadd(4, weights + 64 * chunk, kBlock * 4);
            _tile_loadd(6, values + (chunk * tiles + tile) * kTileBytes, 64);
            _tile_dpbf16ps(0, 4, 6);
        }
        _tile_stored(0, mixed, stride);
    }
}

inline void attend_blocks(const AttentionTask& task, const AttentionPart& part, const AttentionRoom& room, int64_t rows) {
    const TilesInUse tiles(whole_tiles());
    KVRows block;
    for (int64_t begin = task.begin / kBlock * kBlock; begin < task.end; begin += kBlock) {
        block.find(task, begin, room.zeros);
        turn_keys(block, room);
        pair_values(block, room);
        for (int64_t row = 0; row < rows; row += kTile) {
            const int64_t count = std::min(kTile, rows - row);
            const Seen first(task, row, block), last(task, row + count - 1, block);
            if (last.last <= 0 || first.first >= block.count) continue;
            score_tile(room, row);
            for (int64_t index = row; index < row + count; index++) {
                weigh_row(task, room, part, index, block);
                narrow_weights(room, index, block.count);
            }
            mix_tile(room, row, block.count);
        }
    }
}

// A query, scaled and rounded.
inline void narrow_query(const float* query, float scale, int64_t head_dim, uint8_t* to) {
    for (int64_t column = 0; column < head_dim; column += kChunk, to += 64) {
        const Floats low = load(query + column) * scale, high = load(query + column + kTile) * scale;
        const auto both = _mm512_cvtne2ps_pbh(bits_as<__m512>(high), bits_as<__m512>(low));
        _mm512_store_si512(to, bits_as<__m512i>(both));
    }
}

// Mixed values in the order of their columns, which pair_values had changed.
inline void in_order(const float* mixed, int64_t value_dim, float* to) {
    const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    const __m512i second = _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8);
    for (int64_t column = 0; column < value_dim; column += kChunk) {
        const auto low = bits_as<__m512>(load(mixed + column)), high = bits_as<__m512>(load(mixed + column + kTile));
        store(to + column, bits_as<Floats>(_mm512_permutex2var_ps(low, first, high)));
        store(to + column + kTile, bits_as<Floats>(_mm512_permutex2var_ps(low, second, high)));
    }
}

inline void attend_in_tiles(const AttentionTask& task, const AttentionPart& part, uint8_t* scratch) {
    const int64_t head_dim = task.cache->head_dim, rows = task.num_queries * task.group;
    const AttentionRoom room(scratch, round_up(rows, kTile), task);
    auto* const queries = reinterpret_cast<uint8_t*>(room.queries);
    for (int64_t row = 0; row < rows; row++) {
        const float* query = task.queries + row / task.group * task.query_stride + row % task.group * head_dim;
        narrow_query(query, task.scale, head_dim, queries + row * head_dim * 2);
        part.peak[row] = -INFINITY;
        part.total[row] = 0;
    }
    const int64_t padding = round_up(rows, kTile) - rows;
    std::fill(queries + rows * head_dim * 2, queries + (rows + padding) * head_dim * 2, uint8_t{0});
    std::fill(room.mixed, room.mixed + (rows + padding) * room.value_dim, 0.0f);
    std::fill(room.zeros, room.zeros + room.dim * sizeof(float), uint8_t{0});
    attend_blocks(task, part, room, rows);
    for (int64_t row = 0; row < rows; row++) {
        in_order(room.mixed + row * room.value_dim, task.value_dim, part.mixed + row * task.value_dim);
    }
}

#endif

}  // namespace
}  // namespace quire
