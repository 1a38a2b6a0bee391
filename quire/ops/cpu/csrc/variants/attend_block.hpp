// Attention's arithmetic on one block of positions: scores of rows with its keys, and its values mixed by weights of rows.
// A few rows and a few keys, or vectors of columns, meet in registers. However rows are taken together, every number is
// computed in the same order.
#pragma once

#include "softmax.hpp"

namespace quire {
namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kAtOnce = 4;  // keys, or vectors of columns
#else
constexpr int kAtOnce = 2;
#endif

// What a kernel asks memory for while it computes, where that is nothing.
struct NothingComes {
    void while_scoring(int64_t) const {}
    void while_mixing(int64_t) const {}
};

// Scores of kRows rows from `row` on; none where no key of kWidth is seen by any of them.
template <KVType kType, int kRows, typename Coming>
inline void score_rows(const AttentionTask& task, const AttentionRoom& room, int64_t row, const KVRows& block,
                       const Coming& coming) {
    const Seen first(task, row, block), last(task, row + kRows - 1, block);
    for (int64_t key = 0; key < block.count; key += kWidth) {
        if (key >= last.last || key + kWidth <= first.first) continue;
        Floats sums[kRows][kWidth];
        for (int64_t k = 0; k < kWidth; k += kAtOnce) {
            for (int j = 0; j < kAtOnce; j++) coming.while_scoring(key + k + j);
            Floats some[kRows][kAtOnce] = {};
            for (int64_t column = 0; column < room.dim; column += kWidth) {
                Floats queries[kRows];
                for (int r = 0; r < kRows; r++) queries[r] = load(room.queries + (row + r) * room.dim + column);
                for (int j = 0; j < kAtOnce; j++) {
                    const Floats numbers = load_kv<kType>(block.keys[key + k + j], column);
                    for (int r = 0; r < kRows; r++) some[r][j] += queries[r] * numbers;
                }
            }
            for (int r = 0; r < kRows; r++) {
                for (int j = 0; j < kAtOnce; j++) sums[r][k + j] = some[r][j];
            }
        }
        for (int r = 0; r < kRows; r++) store(room.scores + (row + r) * kBlock + key, sums_of(sums[r]));
    }
}

// mixed += weights × values, for kVectors vectors of columns from `column` on.
template <KVType kType, int kRows, int kVectors, typename Coming>
inline void mix_columns(const AttentionRoom& room, int64_t row, int64_t column, const KVRows& block,
                        const Coming& coming) {
    float* mixed = room.mixed + row * room.value_dim + column;
    Floats sums[kRows][kVectors];
    for (int r = 0; r < kRows; r++) {
        for (int v = 0; v < kVectors; v++) sums[r][v] = load(mixed + r * room.value_dim + v * kWidth);
    }
    const float* weights = room.scores + row * kBlock;
    for (int64_t key = 0; key < block.count; key++) {
        coming.while_mixing(key);
        Floats values[kVectors];
        for (int v = 0; v < kVectors; v++) values[v] = load_kv<kType>(block.values[key], column + v * kWidth);
        for (int r = 0; r < kRows; r++) {
            const Floats weight = all(weights[r * kBlock + key]);
            for (int v = 0; v < kVectors; v++) sums[r][v] += weight * values[v];
        }
    }
    for (int r = 0; r < kRows; r++) {
        for (int v = 0; v < kVectors; v++) store(mixed + r * room.value_dim + v * kWidth, sums[r][v]);
    }
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

// Calls use(first column, std::integral_constant<int, number of vectors>) for all columns of values.
template <typename Use>
inline void for_columns(const AttentionRoom& room, Use use) {
    int64_t column = 0;
    for (; column + kAtOnce * kWidth <= room.value_dim; column += kAtOnce * kWidth) {
        use(column, std::integral_constant<int, kAtOnce>());
    }
    for (; column < room.value_dim; column += kWidth) use(column, std::integral_constant<int, 1>());
}

// A row's scores become weights of values.
inline void weigh_block(const AttentionTask& task, const AttentionRoom& room, const AttentionPart& part, int64_t row,
                        const KVRows& block) {
    const bool has_scales = task.cache->type == KVType::i8;
    if (has_scales) scale_row(room, row, block.key_scales, block.count);
    weigh_row(task, room, part, row, block);
    if (has_scales) scale_row(room, row, block.value_scales, block.count);
}

}  // namespace
}  // namespace quire
