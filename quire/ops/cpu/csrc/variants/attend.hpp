// Attention of a few or many queries over one KV head of a paged cache: blocks of positions are brought to float32,
// scored, and folded into a running softmax.
//
// Blocks lie at multiples of 64 positions, and what a query may not see counts as nothing at its own place, so a
// query's result does not depend on which queries are computed with it.
#pragma once

#include <algorithm>

#include "../kernels.hpp"
#include "vector.hpp"

namespace quire {
namespace {

constexpr int64_t kBlock = 64;  // positions at once: enough for the softmax's bookkeeping not to count

// What one task works with, cut from a thread's scratch.
struct AttentionRoom {
    int64_t dim;       // head_dim, padded to whole vectors
    float* queries;    // [rows][dim], scaled
    float* keys;       // [kBlock][dim]
    float* values;     // [kBlock][dim]
    float* scores;     // [rows][kBlock]
    float* mixed;      // [rows][dim]

    AttentionRoom(uint8_t* scratch, int64_t rows, int64_t head_dim) : dim(round_up(head_dim, kWidth)) {
        queries = reinterpret_cast<float*>(scratch);
        keys = queries + rows * dim;
        values = keys + kBlock * dim;
        scores = values + kBlock * dim;
        mixed = scores + rows * kBlock;
    }

    static int64_t bytes(int64_t rows, int64_t head_dim) {
        const int64_t dim = round_up(head_dim, kWidth);
        return 4 * (2 * rows * dim + 2 * kBlock * dim + rows * kBlock) + 64;
    }
};

inline void widen(const uint8_t* from, int64_t count, KVType type, float* to, int64_t padded) {
    int64_t i = 0;
    if (type == KVType::f32) {
        const auto* values = reinterpret_cast<const float*>(from);
        for (; i + kWidth <= count; i += kWidth) store(to + i, load(values + i));
        for (; i < count; i++) to[i] = values[i];
    } else {
        const auto* values = reinterpret_cast<const uint16_t*>(from);
        const bool is_half = type == KVType::f16;
        for (; i + kWidth <= count; i += kWidth) store(to + i, is_half ? load_half(values + i) : load_brain(values + i));
        for (; i < count; i++) to[i] = is_half ? float_of_half(values[i]) : float_of_brain(values[i]);
    }
    for (; i < padded; i++) to[i] = 0;
}

// Rows of one head lie apart and blocks lie anywhere, which hardware does not foresee.
inline void fetch_row(const PagedCache& cache, int64_t at) {
    const int64_t bytes = cache.head_dim * (cache.type == KVType::f32 ? 4 : 2);
    for (int64_t byte = 0; byte < bytes; byte += 64) {
        __builtin_prefetch(cache.keys + at + byte);
        __builtin_prefetch(cache.values + at + byte);
    }
}

// `count` positions from `begin` on. Those before the task's first are never read: behind a window their blocks may be
// someone else's. They are zero, and so are keys behind the last, up to a whole vector of them.
inline void gather_block(const AttentionTask& task, int64_t begin, int64_t count, const AttentionRoom& room) {
    const PagedCache& cache = *task.cache;
    const int64_t size = cache.type == KVType::f32 ? 4 : 2, step = cache.kv_heads * cache.head_dim * size;
    const int64_t skipped = std::clamp<int64_t>(task.begin - begin, 0, count);
    std::fill(room.keys, room.keys + skipped * room.dim, 0.0f);
    std::fill(room.values, room.values + skipped * room.dim, 0.0f);
    for (int64_t i = skipped; i < count;) {
        const int64_t position = begin + i, within = position % cache.block_size;
        const int64_t slot = task.table[position / cache.block_size] * cache.block_size + within;
        int64_t at = (slot * cache.kv_heads + task.kv_head) * cache.head_dim * size;
        const int64_t last = std::min(count, i + cache.block_size - within);  // of this block of the cache
        const int64_t following = position + cache.block_size;
        const int64_t next = following < task.end ? task.table[following / cache.block_size] : slot / cache.block_size;
        const int64_t ahead = (next - slot / cache.block_size) * cache.block_size * step;
        for (; i < last; i++, at += step) {
            fetch_row(cache, at + ahead);  // while this block is read, the next one comes
            widen(cache.keys + at, cache.head_dim, cache.type, room.keys + i * room.dim, room.dim);
            widen(cache.values + at, cache.head_dim, cache.type, room.values + i * room.dim, room.dim);
        }
    }
    std::fill(room.keys + count * room.dim, room.keys + round_up(count, kWidth) * room.dim, 0.0f);
}

// Products of one query with kWidth keys; those of keys beyond the block are masked.
inline Floats score_keys(const float* query, const float* keys, int64_t dim) {
    Floats sums[kWidth] = {};
    for (int64_t at = 0; at < dim; at += kWidth) {
        const Floats q = load(query + at);
        for (int64_t key = 0; key < kWidth; key++) sums[key] += q * load(keys + key * dim + at);
    }
    return sums_of(sums);
}

inline Floats cap(Floats scores, float softcap) {
    for (int64_t lane = 0; lane < kWidth; lane++) scores[lane] = softcap * std::tanh(scores[lane] / softcap);
    return scores;
}

// Scores of one row for a block; positions it may not see are -inf. Returns the largest.
inline float score_row(const AttentionTask& task, const AttentionRoom& room, int64_t row, int64_t begin,
                       int64_t count) {
    const int64_t own = task.first_position + row / task.group;  // the query's own position
    const int64_t last = std::min(count, own + 1 - begin);
    const int64_t first = task.window > 0 ? std::max<int64_t>(0, own - task.window + 1 - begin) : 0;
    float* scores = room.scores + row * kBlock;
    Floats largest = all(-INFINITY);
    for (int64_t key = 0; key < count; key += kWidth) {
        if (key >= last || key + kWidth <= first) {
            store(scores + key, all(-INFINITY));
            continue;
        }
        Floats values = score_keys(room.queries + row * room.dim, room.keys + key * room.dim, room.dim);
        if (task.softcap > 0) values = cap(values, task.softcap);
        if (key < first || key + kWidth > last) {
            for (int64_t lane = 0; lane < kWidth; lane++) {
                if (key + lane < first || key + lane >= last) values[lane] = -INFINITY;
            }
        }
        store(scores + key, values);
        largest = larger(largest, values);
    }
    return largest_of(largest);
}

// Scores become weights relative to the row's new peak; what was mixed before is scaled to it.
inline void weigh_row(const AttentionRoom& room, const AttentionPart& part, int64_t row, int64_t count, float largest) {
    float* scores = room.scores + row * kBlock;
    const float peak = std::max(part.peak[row], largest);
    if (peak == -INFINITY) {  // nothing seen yet
        for (int64_t key = 0; key < count; key += kWidth) store(scores + key, Floats{});
        return;
    }
    if (peak != part.peak[row]) {
        const float shrink = std::exp(part.peak[row] - peak);
        part.total[row] *= shrink;
        for (int64_t at = 0; at < room.dim; at += kWidth) {
            float* mixed = room.mixed + row * room.dim + at;
            store(mixed, load(mixed) * shrink);
        }
        part.peak[row] = peak;
    }
    Floats total = {};
    for (int64_t key = 0; key < count; key += kWidth) {
        const Floats weights = exp_of(load(scores + key) - peak);
        store(scores + key, weights);
        total += weights;
    }
    part.total[row] += sum_of(total);
}

// mixed[rows] += weights[rows] × values, kRows × kParts vectors at a time in registers.
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

inline int64_t attend_scratch(int64_t rows, int64_t head_dim) { return AttentionRoom::bytes(rows, head_dim); }

inline void attend(const AttentionTask& task, const AttentionPart& part, uint8_t* scratch) {
    const int64_t head_dim = task.cache->head_dim, rows = task.num_queries * task.group;
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
    for (int64_t begin = task.begin / kBlock * kBlock; begin < task.end; begin += kBlock) {
        const int64_t count = std::min(kBlock, task.end - begin);
        gather_block(task, begin, count, room);
        for (int64_t row = 0; row < rows; row++) {
            weigh_row(room, part, row, count, score_row(task, room, row, begin, count));
        }
        mix_block(room, rows, count);
    }
    for (int64_t row = 0; row < rows; row++) {
        std::copy(room.mixed + row * room.dim, room.mixed + row * room.dim + head_dim, part.mixed + row * head_dim);
    }
}

}  // namespace
}  // namespace quire
