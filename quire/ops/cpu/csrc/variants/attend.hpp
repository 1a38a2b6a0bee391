// Attention of a few or many queries over one KV head of a paged cache: blocks of positions are scored and folded into a
// running softmax. For many rows a block of keys and values is brought to float32 once and serves them all.
//
// Blocks lie at multiples of 64 positions, and what a query may not see counts as nothing at its own place, so a
// query's result does not depend on which queries are computed with it. Where there are tiles of bfloat16, which round
// differently, all queries of prompts go there.
#pragma once

#include "attend_few.hpp"
#include "attend_tiles.hpp"

namespace quire {
namespace {

inline void widen(const uint8_t* row, KVType type, int64_t size, float* to, int64_t padded) {
    int64_t i = 0;
    with_kv_type(type, [&](auto known) {
        for (; i + kWidth <= size; i += kWidth) store(to + i, load_kv<known>(row, i));
    });
    for (; i < size; i++) to[i] = kv_number(type, row, i);
    for (; i < padded; i++) to[i] = 0;
}

// Keys and values in float32 instead of where the block found them.
inline void gather_block(const AttentionTask& task, const AttentionRoom& room, KVRows& block) {
    const PagedCache& cache = *task.cache;
    for (int64_t i = 0; i < block.count; i++) {
        float *key = room.keys + i * room.dim, *value = room.values + i * room.value_dim;
        widen(block.keys[i], cache.type, cache.head_dim, key, room.dim);
        widen(block.values[i], cache.type, task.value_dim, value, room.value_dim);
        block.keys[i] = reinterpret_cast<const uint8_t*>(key);
        block.values[i] = reinterpret_cast<const uint8_t*>(value);
    }
}

inline void attend_many(const AttentionTask& task, const AttentionPart& part, const AttentionRoom& room, int64_t rows) {
    KVRows block;
    for (int64_t begin = task.begin / kBlock * kBlock; begin < task.end; begin += kBlock) {
        block.find(task, begin, room.zeros);
        if (task.cache->type == KVType::i8) block.read_scales(task);
        gather_block(task, room, block);
        for_few_rows(rows, [&](int64_t row, auto count) {  // weighed while their scores are in the first cache
            score_rows<KVType::f32, count>(task, room, row, block, NothingComes());
            for (int64_t r = row; r < row + count; r++) weigh_block(task, room, part, r, block);
        });
        for_columns(room, [&](int64_t column, auto vectors) {  // those of all values stay in the first cache
            for_few_rows(rows, [&](int64_t row, auto count) {
                mix_columns<KVType::f32, count, vectors>(room, row, column, block, NothingComes());
            });
        });
    }
}

// Tiles need whole ones of rows.
inline int64_t attend_scratch(int64_t rows, int64_t head_dim) { return AttentionRoom::bytes(round_up(rows, 16), head_dim); }

inline void attend(const AttentionTask& task, const AttentionPart& part, uint8_t* scratch) {
    const int64_t head_dim = task.cache->head_dim, rows = task.num_queries * task.group;
#if defined(__AMX_BF16__)
    if (task.is_prompt && fits_tiles(task)) return attend_in_tiles(task, part, scratch);
#endif
    const AttentionRoom room(scratch, rows, task);
    for (int64_t row = 0; row < rows; row++) {
        const float* query = task.queries + row / task.group * task.query_stride + row % task.group * head_dim;
        float* scaled = room.queries + row * room.dim;
        for (int64_t i = 0; i < head_dim; i++) scaled[i] = query[i] * task.scale;
        std::fill(scaled + head_dim, scaled + room.dim, 0.0f);
        part.peak[row] = -INFINITY;
        part.total[row] = 0;
    }
    std::fill(room.mixed, room.mixed + rows * room.value_dim, 0.0f);
    std::fill(room.zeros, room.zeros + room.dim * sizeof(float), uint8_t{0});
    const bool is_whole = head_dim == room.dim && task.value_dim == room.value_dim;  // vectors, without padding
    if (is_whole && (rows <= kMostFewRows || task.cache->is_of_latents())) {
        with_kv_type(task.cache->type, [&](auto known) { attend_few<known>(task, part, room, rows); });
    } else {
        attend_many(task, part, room, rows);
    }
    for (int64_t row = 0; row < rows; row++) {
        const float* mixed = room.mixed + row * room.value_dim;
        std::copy(mixed, mixed + task.value_dim, part.mixed + row * task.value_dim);
    }
}

}  // namespace
}  // namespace quire
