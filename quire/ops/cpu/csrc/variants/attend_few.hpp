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

// Scores of kRows rows. Meanwhile the block's values come.
template <KVType kType, int kRows>
inline void score_few(const AttentionTask& task, const AttentionRoom& room, int64_t row, const KVRows& block) {
    const Seen first(task, row, block), last(task, row + kRows - 1, block);
    for (int64_t key = 0; key < block.count; key += kWidth) {
        if (key >= last.last || key + kWidth <= first.first) continue;
        Floats sums[kRows][kWidth];
        for (int64_t k = 0; k < kWidth; k += kKeysAtOnce) {
            for (int j = 0; j < kKeysAtOnce; j++) block.fetch(block.values[std::min(block.count - 1, key + k + j)]);
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
inline void mix_few(const AttentionRoom& room, int64_t row, int64_t column, const KVRows& block, const KVRows& next) {
    float* mixed = room.mixed + row * room.dim + column;
    Floats sums[kRows][kVectors];
    for (int r = 0; r < kRows; r++) {
        for (int v = 0; v < kVectors; v++) sums[r][v] = load(mixed + r * room.dim + v * kWidth);
    }
    const float* weights = room.scores + row * kBlock;
    for (int64_t key = 0; key < block.count; key++) {
        if (key < next.count) next.fetch(next.keys[key]);
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
inline void mix_few(const AttentionRoom& room, int64_t row, const KVRows& block, const KVRows& next) {
    int64_t column = 0;
    for (; column + kKeysAtOnce * kWidth <= room.dim; column += kKeysAtOnce * kWidth) {
        mix_few<kType, kRows, kKeysAtOnce>(room, row, column, block, next);
    }
    for (; column < room.dim; column += kWidth) mix_few<kType, kRows, 1>(room, row, column, block, next);
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
    KVRows blocks[2];
    KVRows *block = &blocks[0], *next = &blocks[1];
    block->find(task, task.begin / kBlock * kBlock, room.zeros);
    for (; block->count > 0; std::swap(block, next)) {
        next->find(task, block->begin + kBlock, room.zeros);
        for_few_rows(rows, [&](int64_t row, auto count) { score_few<kType, count>(task, room, row, *block); });
        for (int64_t row = 0; row < rows; row++) weigh_row(task, room, part, row, *block);
        for_few_rows(rows, [&](int64_t row, auto count) { mix_few<kType, count>(room, row, *block, *next); });
    }
}

}  // namespace
}  // namespace quire
