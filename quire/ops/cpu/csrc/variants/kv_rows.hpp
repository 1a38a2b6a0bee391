// Where keys and values of a block of positions lie in a paged cache, and how their numbers are read.
#pragma once

#include <algorithm>

#include "../kernels.hpp"
#include "vector.hpp"

namespace quire {
namespace {

constexpr int64_t kBlock = 64;  // positions at once: enough for the softmax's bookkeeping not to count

constexpr int64_t kv_bytes(KVType type) { return type == KVType::f32 ? 4 : 2; }

template <KVType kType>
inline Floats load_kv(const uint8_t* row, int64_t column) {
    if constexpr (kType == KVType::f32) return load(reinterpret_cast<const float*>(row) + column);
    if constexpr (kType == KVType::f16) return load_half(reinterpret_cast<const uint16_t*>(row) + column);
    if constexpr (kType == KVType::bf16) return load_brain(reinterpret_cast<const uint16_t*>(row) + column);
}

inline float kv_number(KVType type, const uint8_t* row, int64_t column) {
    if (type == KVType::f32) return reinterpret_cast<const float*>(row)[column];
    const uint16_t narrow = reinterpret_cast<const uint16_t*>(row)[column];
    return type == KVType::f16 ? float_of_half(narrow) : float_of_brain(narrow);
}

// Calls use(std::integral_constant<KVType, type>).
template <typename Use>
inline void with_kv_type(KVType type, Use use) {
    switch (type) {
        case KVType::f32: return use(std::integral_constant<KVType, KVType::f32>());
        case KVType::f16: return use(std::integral_constant<KVType, KVType::f16>());
        case KVType::bf16: return use(std::integral_constant<KVType, KVType::bf16>());
    }
}

// Rows of one KV head for kBlock positions; a position that is not there has a row of zeros.
struct KVRows {
    int64_t begin, count;  // positions
    int64_t bytes;         // of a row
    const uint8_t* keys[kBlock];
    const uint8_t* values[kBlock];

    // Positions from `begin` on to the task's last. Those before its first are not there: behind a window their blocks
    // may be someone else's. An empty block lies behind the last.
    void find(const AttentionTask& task, int64_t first, const uint8_t* zeros) {
        const PagedCache& cache = *task.cache;
        begin = first;
        count = std::clamp<int64_t>(task.end - begin, 0, kBlock);
        bytes = cache.head_dim * kv_bytes(cache.type);
        int64_t i = std::clamp<int64_t>(task.begin - begin, 0, count);
        std::fill(keys, keys + i, zeros);
        std::fill(values, values + i, zeros);
        while (i < count) {
            const int64_t position = begin + i, within = position % cache.block_size;
            const int64_t slot = task.table[position / cache.block_size] * cache.block_size + within;
            int64_t at = (slot * cache.kv_heads + task.kv_head) * bytes;
            const int64_t last = std::min(count, i + cache.block_size - within);  // of this block of the cache
            for (; i < last; i++, at += cache.kv_heads * bytes) {
                keys[i] = cache.keys + at;
                values[i] = cache.values + at;
            }
        }
        std::fill(keys + count, keys + round_up(count, kWidth), zeros);
    }

    // Rows of one head lie apart and blocks lie anywhere, which hardware does not foresee: while others are computed
    // with, these come. To the second cache, which can wait for three times as many lines at once as the first.
    void fetch(const uint8_t* row) const { fetch(row, bytes); }

    static void fetch(const uint8_t* row, int64_t bytes) {
        for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 0, 2);
    }
};

}  // namespace
}  // namespace quire
