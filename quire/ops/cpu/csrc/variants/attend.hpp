// Attention of a few or many queries over one KV head of a paged cache: blocks of positions are scored and folded into a
// running softmax. For many rows a block is brought to float32 once and serves them all.
//
// Blocks lie at multiples of 64 positions, and what a query may not see counts as nothing at its own place, so a
// query's result does not depend on which queries are computed with it. Where there are tiles of bfloat16, which round
// differently, all queries of prompts go there.
#pragma once

#include "attend_few.hpp"
#include "attend_tiles.hpp"

namespace quire {
namespace {

inline void widen(const uint8_t* row, KVType type, int64_t head_dim, float* to, int64_t padded) {
    int64_t i = 0;
    with_kv_type(type, [&](auto known) {
        for (; i + kWidth <= head_dim; i += kWidth) store(to + i, load_kv<known>(row, i));
    });
    for (; i < head_dim; i++) to[i] = kv_number(type, row, i);
    for (; i < padded; i++) to[i] = 0;
}

inline void gather_block(const AttentionTask& task, const KVRows& block, const AttentionRoom& room) {
    const KVType type = task.cache->type;
    const int64_t head_dim = task.cache->head_dim;
    for (int64_t i = 0; i < block.count; i++) {
        widen(block.keys[i], type, head_dim, room.keys + i * room.dim, room.dim);
        widen(block.values[i], type, head_dim, room.values + i * room.dim, room.dim);
    }
    std::fill(room.keys + block.count * room.dim, room.keys + round_up(block.count, kWidth) * room.dim, 0.0f);
}

// Dot products of one query with kWidth keys; keys beyond the block are masked. With a kDim other than 0 the keys'
// addresses are constants away from each other, and take no registers.
template <int64_t kDim>
inline Floats score_keys(const float* query, const float* keys, int64_t any_dim) {
    const int64_t dim = kDim == 0 ? any_dim : kDim;
    Floats sums[kWidth] = {};
    for (int64_t at = 0; at < dim; at += kWidth) {
        const Floats q = load(query + at);
        for (int64_t key = 0; key < kWidth; key++) sums[key] += q * load(keys + key * dim + at);
    }
    return sums_of(sums);
}

template <int64_t kDim>
inline void score_row(const AttentionTask& task, const AttentionRoom& room, int64_t row, const KVRows& block) {
    const Seen seen(task, row, block);
    const int64_t dim = room.dim;
    for (int64_t key = 0; key < block.count; key += kWidth) {
        if (!seen.any(key)) continue;
        store(room.scores + row * kBlock + key, score_keys<kDim>(room.queries + row * dim, room.keys + key * dim, dim));
    }
}

inline void score_row(const AttentionTask& task, const AttentionRoom& room, int64_t row, const KVRows& block) {
    switch (room.dim) {
        case 64: return score_row<64>(task, room, row, block);
        case 128: return score_row<128>(task, room, row, block);
        default: return score_row<0>(task, room, row, block);
    }
}

// mixed[rows] += weights[rows] × values, kRows × kVectors vectors at a time in registers.
template <int kRows, int kVectors>
inline void mix(const AttentionRoom& room, int64_t row, int64_t at, int64_t count) {
    Floats sums[kRows][kVectors];
    for (int r = 0; r < kRows; r++) {
        for (int v = 0; v < kVectors; v++) sums[r][v] = load(room.mixed + (row + r) * room.dim + at + v * kWidth);
    }
    for (int64_t key = 0; key < count; key++) {
        Floats values[kVectors];
        for (int v = 0; v < kVectors; v++) values[v] = load(room.values + key * room.dim + at + v * kWidth);
        for (int r = 0; r < kRows; r++) {
            const Floats weight = all(room.scores[(row + r) * kBlock + key]);
            for (int v = 0; v < kVectors; v++) sums[r][v] += weight * values[v];
        }
    }
    for (int r = 0; r < kRows; r++) {
        for (int v = 0; v < kVectors; v++) store(room.mixed + (row + r) * room.dim + at + v * kWidth, sums[r][v]);
    }
}

template <int kVectors>
inline void mix_rows(const AttentionRoom& room, int64_t rows, int64_t at, int64_t count) {
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) mix<4, kVectors>(room, row, at, count);
    for (; row + 2 <= rows; row += 2) mix<2, kVectors>(room, row, at, count);
    for (; row < rows; row++) mix<1, kVectors>(room, row, at, count);
}

inline void mix_block(const AttentionRoom& room, int64_t rows, int64_t count) {
    constexpr int kVectors = kWidth == 16 ? 4 : 2;
    int64_t at = 0;
    for (; at + kVectors * kWidth <= room.dim; at += kVectors * kWidth) mix_rows<kVectors>(room, rows, at, count);
    for (; at < room.dim; at += kWidth) mix_rows<1>(room, rows, at, count);
}

inline void attend_many(const AttentionTask& task, const AttentionPart& part, const AttentionRoom& room, int64_t rows) {
    const bool has_scales = task.cache->type == KVType::i8;
    KVRows block;
    for (int64_t begin = task.begin / kBlock * kBlock; begin < task.end; begin += kBlock) {
        block.find(task, begin, room.zeros);
        gather_block(task, block, room);
        if (has_scales) block.read_scales(task);
        for (int64_t row = 0; row < rows; row++) {  // one by one, as a row's scores are still in the first cache
            score_row(task, room, row, block);
            if (has_scales) scale_row(room, row, block.key_scales, block.count);
            weigh_row(task, room, part, row, block);
            if (has_scales) scale_row(room, row, block.value_scales, block.count);
        }
        mix_block(room, rows, block.count);
    }
}

// Tiles need whole ones of rows.
inline int64_t attend_scratch(int64_t rows, int64_t head_dim) { return AttentionRoom::bytes(round_up(rows, 16), head_dim); }

inline void attend(const AttentionTask& task, const AttentionPart& part, uint8_t* scratch) {
    const int64_t head_dim = task.cache->head_dim, rows = task.num_queries * task.group;
#if defined(__AMX_BF16__)
    if (task.is_prompt && fits_tiles(*task.cache)) return attend_in_tiles(task, part, scratch);
#endif
    const AttentionRoom room(scratch, rows, head_dim);
    for (int64_t row = 0; row < rows; row++) {
        const float* query = task.queries + row / task.group * task.query_stride + row % task.group * head_dim;
        float* scaled = room.queries + row * room.dim;
        for (int64_t i = 0; i < head_dim; i++) scaled[i] = query[i] * task.scale;
        std::fill(scaled + head_dim, scaled + room.dim, 0.0f);
        part.peak[row] = -INFINITY;
        part.total[row] = 0;
    }
    std::fill(room.mixed, room.mixed + rows * room.dim, 0.0f);
    std::fill(room.zeros, room.zeros + room.dim * sizeof(float), uint8_t{0});
    if (rows <= kMostFewRows && head_dim == room.dim) {
        with_kv_type(task.cache->type, [&](auto known) { attend_few<known>(task, part, room, rows); });
    } else {
        attend_many(task, part, room, rows);
    }
    for (int64_t row = 0; row < rows; row++) {
        std::copy(room.mixed + row * room.dim, room.mixed + row * room.dim + head_dim, part.mixed + row * head_dim);
    }
}

}  // namespace
}  // namespace quire
