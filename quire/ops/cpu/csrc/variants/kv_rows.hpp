// Where keys and values of a block of positions lie in a paged cache, and how their numbers are read.
#pragma once

#include <algorithm>
#include <cstring>

#include "../kernels.hpp"
#include "vector.hpp"

namespace quire {
namespace {

// GCC takes a function that only prefetches for one without effect, and drops its calls unless they are inlined early.
#define QUIRE_PREFETCHES __attribute__((always_inline))

constexpr int64_t kBlock = 64;  // positions at once: enough for the softmax's bookkeeping not to count

template <KVType kType>
inline Floats load_kv(const uint8_t* row, int64_t column) {
    if constexpr (kType == KVType::f32) return load(reinterpret_cast<const float*>(row) + column);
    if constexpr (kType == KVType::f16) return load_half(reinterpret_cast<const uint16_t*>(row) + column);
    if constexpr (kType == KVType::bf16) return load_brain(reinterpret_cast<const uint16_t*>(row) + column);
    if constexpr (kType == KVType::i8) return load_bytes_as_floats(reinterpret_cast<const int8_t*>(row) + column);
}

inline float kv_number(KVType type, const uint8_t* row, int64_t column) {
    if (type == KVType::f32) return reinterpret_cast<const float*>(row)[column];
    if (type == KVType::i8) return static_cast<float>(reinterpret_cast<const int8_t*>(row)[column]);
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
        case KVType::i8: return use(std::integral_constant<KVType, KVType::i8>());
    }
}

// Rows of one KV head for kBlock positions; a position that is not there has a row of zeros.
struct KVRows {
    int64_t begin, count;  // positions
    int64_t bytes;         // of a row
    const uint8_t* keys[kBlock];
    const uint8_t* values[kBlock];
    float key_scales[kBlock];  // of i8, once they are read
    float value_scales[kBlock];

    // Positions from `begin` on to the task's last. Those before its first are not there: behind a window their blocks
    // may be someone else's. An empty block lies behind the last.
    void find(const AttentionTask& task, int64_t first, const uint8_t* zeros) {
        const PagedCache& cache = *task.cache;
        begin = first;
        count = std::clamp<int64_t>(task.end - begin, 0, kBlock);
        bytes = cache.vector_bytes();
        const int64_t missing = first_there(task);
        std::fill(keys, keys + missing, zeros);
        std::fill(values, values + missing, zeros);
        for_runs(task, [&](int64_t i, int64_t last, int64_t block, int64_t within) {
            int64_t at = cache.vector_at(block, within, task.kv_head);
            for (; i < last; i++, at += cache.kv_heads * bytes) {
                keys[i] = cache.keys + at;
                values[i] = cache.values + at;
            }
        });
        std::fill(keys + count, keys + round_up(count, kWidth), zeros);
    }

    // The scales of i8; those of positions that are not there are 0.
    void read_scales(const AttentionTask& task) {
        const PagedCache& cache = *task.cache;
        const int64_t missing = first_there(task), padded = round_up(count, kWidth);
        std::fill(key_scales, key_scales + missing, 0.0f);
        std::fill(value_scales, value_scales + missing, 0.0f);
        for_runs(task, [&](int64_t i, int64_t last, int64_t block, int64_t within) {
            const int64_t at = cache.scale_at(block, within, task.kv_head);
            std::memcpy(key_scales + i, cache.keys + at, (last - i) * sizeof(float));
            std::memcpy(value_scales + i, cache.values + at, (last - i) * sizeof(float));
        });
        std::fill(key_scales + count, key_scales + padded, 0.0f);
        std::fill(value_scales + count, value_scales + padded, 0.0f);
    }

    // They lie apart from the numbers, so they come ahead too: those of one head.
    QUIRE_PREFETCHES void fetch_scales(const AttentionTask& task, int64_t head) const {
        const PagedCache& cache = *task.cache;
        for_runs(task, [&](int64_t i, int64_t last, int64_t block, int64_t within) {
            const int64_t at = cache.scale_at(block, within, head), bytes = (last - i) * sizeof(float);
            fetch(cache.keys + at, bytes);
            fetch(cache.values + at, bytes);
        });
    }

    // Rows of one head lie apart and blocks lie anywhere, which hardware does not foresee: while others are computed
    // with, these come. To the second cache, which can wait for three times as many lines at once as the first.
    QUIRE_PREFETCHES void fetch(const uint8_t* row) const { fetch(row, bytes); }

    QUIRE_PREFETCHES static void fetch(const uint8_t* row, int64_t bytes) {
        for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte, 0, 2);
    }

private:
    int64_t first_there(const AttentionTask& task) const { return std::clamp<int64_t>(task.begin - begin, 0, count); }

    // Calls use(i, last, block, within) for positions i to last that lie side by side in a block of the cache, the first
    // of them in slot `within`.
    template <typename Use>
    void for_runs(const AttentionTask& task, Use use) const {
        const int64_t block_size = task.cache->block_size;
        for (int64_t i = first_there(task); i < count;) {
            const int64_t position = begin + i, within = position % block_size;
            const int64_t last = std::min(count, i + block_size - within);
            use(i, last, task.table[position / block_size], within);
            i = last;
        }
    }
};

}  // namespace
}  // namespace quire
