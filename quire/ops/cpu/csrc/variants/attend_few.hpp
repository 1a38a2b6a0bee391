// Attention of few rows, straight from the cache: keys and values are read once, so bringing them to float32 first would
// cost more than the arithmetic. Every number is computed as in attend.hpp, in the same order.
#pragma once

#include "softmax.hpp"

namespace quire {
namespace {

constexpr int64_t kMostFewRows = 8;

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kKeysAtOnce = 4;
#else
constexpr int kKeysAtOnce = 2;
#endif

// What comes from memory while a block is computed with: the next block of the same head, and as much of what the
// thread attends to after this. There rows of all KV heads lie side by side, and each head's turn brings its share of
// whole ones.
struct Coming {
    const KVRows& next;
    const KVRows& after;  // of the first KV head; of no positions where nothing comes
    const int64_t heads, own_head, row_bytes;

    void fetch_keys(int64_t key) const {
        if (is_own(key)) KVRows::fetch(after.keys[key], row_bytes);
    }
    void fetch_values(int64_t key) const {
        if (is_own(key)) KVRows::fetch(after.values[key], row_bytes);
    }

private:
    bool is_own(int64_t key) const { return key < after.count && key % heads == own_head; }
};

// Scores of kRows rows. Meanwhile the block's values come.
template <KVType kType, int kRows>
inline void score_few(const AttentionTask& task, const AttentionRoom& room, int64_t row, const KVRows& block,
                      const Coming& coming) {
    const Seen first(task, row, block), last(task, row + kRows - 1, block);
    for (int64_t key = 0; key < block.count; key += kWidth) {
        if (key >= last.last || key + kWidth <= first.first) continue;
        Floats sums[kRows][kWidth];
        for (int64_t k = 0; k < kWidth; k += kKeysAtOnce) {
            for (int j = 0; j < kKeysAtOnce; j++) {
                block.fetch(block.values[std::min(block.count - 1, key + k + j)]);
                coming.fetch_keys(key + k + j);
            }
            Floats some[kRows][kKeysAtOnce] = {};
            for (int64_t column = 0; column < room.dim; column += kWidth) {
                Floats queries[kRows];
                for (int r = 0; r < kRows; r++) queries[r] = load(room.queries + (row + r) * room.dim + column);
                for (int j = 0; j < kKeysAtOnce; j++) {
                    const Floats numbers = load_kv<kType>(block.keys[key + k + j], column);
                    for (int r = 0; r < kRows; r++) some[r][j] += queries[r] * numbers;
                }
            }
            for (int r = 0; r < kRows; r++) {
                for (int j = 0; j < kKeysAtOnce; j++) sums[r][k + j] = some[r][j];
            }
        }
        for (int r = 0; r < kRows; r++) store(room.scores + (row + r) * kBlock + key, sums_of(sums[r]));
    }
}

// mixed += weights × values, for kVectors vectors of columns. Meanwhile the next block's keys come.
template <KVType kType, int kRows, int kVectors>
inline void mix_few(const AttentionRoom& room, int64_t row, int64_t column, const KVRows& block, const Coming& coming) {
    float* mixed = room.mixed + row * room.dim + column;
    Floats sums[kRows][kVectors];
    for (int r = 0; r < kRows; r++) {
        for (int v = 0; v < kVectors; v++) sums[r][v] = load(mixed + r * room.dim + v * kWidth);
    }
    const float* weights = room.scores + row * kBlock;
    for (int64_t key = 0; key < block.count; key++) {
        if (key < coming.next.count) coming.next.fetch(coming.next.keys[key]);
        coming.fetch_values(key);
        Floats values[kVectors];
        for (int v = 0; v < kVectors; v++) values[v] = load_kv<kType>(block.values[key], column + v * kWidth);
        for (int r = 0; r < kRows; r++) {
            const Floats weight = all(weights[r * kBlock + key]);
            for (int v = 0; v < kVectors; v++) sums[r][v] += weight * values[v];
        }
    }
    for (int r = 0; r < kRows; r++) {
        for (int v = 0; v < kVectors; v++) store(mixed + r * room.dim + v * kWidth, sums[r][v]);
    }
}

template <KVType kType, int kRows>
inline void mix_few(const AttentionRoom& room, int64_t row, const KVRows& block, const Coming& coming) {
    int64_t column = 0;
    for (; column + kKeysAtOnce * kWidth <= room.dim; column += kKeysAtOnce * kWidth) {
        mix_few<kType, kRows, kKeysAtOnce>(room, row, column, block, coming);
    }
    for (; column < room.dim; column += kWidth) mix_few<kType, kRows, 1>(room, row, column, block, coming);
}

// Calls use(first row, std::integral_constant<int, number of rows>) for all rows, four of them at a time.
template <typename Use>
inline void for_few_rows(int64_t rows, Use use) {
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) use(row, std::integral_constant<int, 4>());
    switch (rows - row) {
        case 3: return use(row, std::integral_constant<int, 3>());
        case 2: return use(row, std::integral_constant<int, 2>());
        case 1: return use(row, std::integral_constant<int, 1>());
    }
}

template <KVType kType>
inline void attend_few(const AttentionTask& task, const AttentionPart& part, const AttentionRoom& room, int64_t rows) {
    KVRows blocks[2], after;
    after.count = 0;
    KVRows *block = &blocks[0], *next = &blocks[1];
    block->find(task, task.begin / kBlock * kBlock, room.zeros);
    for (; block->count > 0; std::swap(block, next)) {
        next->find(task, block->begin + kBlock, room.zeros);
        if (task.next != nullptr) after.find(*task.next, task.next->begin + block->begin - task.begin, room.zeros);
        const int64_t heads = task.cache->kv_heads;
        const Coming coming{*next, after, heads, task.kv_head, heads * block->bytes};
        if constexpr (kType == KVType::i8) {
            next->fetch_scales(task, task.kv_head);
            if (after.count > 0) after.fetch_scales(*task.next, task.kv_head);
            block->read_scales(task);
        }
        for_few_rows(rows, [&](int64_t row, auto count) { score_few<kType, count>(task, room, row, *block, coming); });
        for (int64_t row = 0; row < rows; row++) {
            if constexpr (kType == KVType::i8) scale_row(room, row, block->key_scales, block->count);
            weigh_row(task, room, part, row, *block);
            if constexpr (kType == KVType::i8) scale_row(room, row, block->value_scales, block->count);
        }
        for_few_rows(rows, [&](int64_t row, auto count) { mix_few<kType, count>(room, row, *block, coming); });
    }
}

}  // namespace
}  // namespace quire
