// A and B of LoRA adapters, a page of 16 ranks at a time, for a few rows that have the same adapter. Sums of a row have
// one order, however many rows there are.
#pragma once

#include <cstdint>

#include "../kernels.hpp"
#include "vector.hpp"

namespace quire {
namespace {

constexpr int64_t kRankVectors = kPageRank / kWidth;
// Rows that share what is loaded of a page: as many as registers hold the sums of, which AVX-512 and NEON have 32 for.
// Without a fused multiply-add (plain x86-64) the last outputs of a part would also round otherwise than the others.
#ifdef __ARM_NEON
constexpr int64_t kSharingRows = 4;
#else
constexpr int64_t kSharingRows = kWidth == 16 ? 4 : 1;
#endif
// Bytes that are asked for ahead: a core's own reading ahead ends with every page of memory, and matrices are short.
constexpr int64_t kLoraAhead = 2048;
// At once: a single vector of sums would wait for its last addition every time. Those of NEON are four to 16 ranks.
constexpr int64_t kColumnSums = kWidth == 4 ? 1 : 4;

inline Floats load_page(const float* from) { return load(from); }
inline Floats load_page(const uint16_t* from) { return load_brain(from); }
inline float page_number(float value) { return value; }
inline float page_number(uint16_t value) { return float_of_brain(value); }

// inner[row][rank] = Σ x[row][column] * down[column][rank]
template <int64_t kRows, typename T>
void lora_down(const float* const* x, int64_t columns, const T* down, float (*inner)[kPageRank]) {
    Floats sums[kColumnSums][kRows][kRankVectors] = {};
    const auto add = [&](int64_t part, int64_t column) {
        for (int64_t vector = 0; vector < kRankVectors; vector++) {
            const Floats weights = load_page(down + column * kPageRank + vector * kWidth);
            for (int64_t row = 0; row < kRows; row++) sums[part][row][vector] += all(x[row][column]) * weights;
        }
    };
    int64_t column = 0;
    for (; column + kColumnSums <= columns; column += kColumnSums) {
        const auto* const ahead = reinterpret_cast<const uint8_t*>(down + column * kPageRank) + kLoraAhead;
        for (int64_t line = 0; line < kColumnSums * kPageRank * static_cast<int64_t>(sizeof(T)); line += 64) {
            __builtin_prefetch(ahead + line);
        }
        for (int64_t part = 0; part < kColumnSums; part++) add(part, column + part);
    }
    for (; column < columns; column++) add(0, column);
    for (int64_t row = 0; row < kRows; row++) {
        for (int64_t vector = 0; vector < kRankVectors; vector++) {
            Floats total = sums[0][row][vector];
            for (int64_t part = 1; part < kColumnSums; part++) total += sums[part][row][vector];
            store(inner[row] + vector * kWidth, total);
        }
    }
}

// y[row][output] += Σ inner[row][rank] * up[rank][output], whose ranks are `stride` apart. Four ranks at a time: more
// would be more streams than a core reads ahead, and fewer would touch the outputs more often.
template <int64_t kRows, typename T>
void lora_up(const float (*inner)[kPageRank], const T* up, int64_t stride, int64_t outputs, float* const* y) {
    constexpr int64_t kBlocks = 4 / kRows;
    for (int64_t first = 0; first < kPageRank; first += 4) {
        const T* const ranks = up + first * stride;
        int64_t output = 0;
        for (; output + kBlocks * kWidth <= outputs; output += kBlocks * kWidth) {
            Floats sums[kRows][kBlocks];
            for (int64_t row = 0; row < kRows; row++) {
                for (int64_t block = 0; block < kBlocks; block++) {
                    sums[row][block] = load(y[row] + output + block * kWidth);
                }
            }
            for (int64_t rank = 0; rank < 4; rank++) {
                const T* const weights_at = ranks + rank * stride + output;
                // the next four ranks, and of the first the outputs to come
                __builtin_prefetch(weights_at + 4 * stride);
                if (first == 0) __builtin_prefetch(reinterpret_cast<const uint8_t*>(weights_at) + kLoraAhead / 4);
                for (int64_t block = 0; block < kBlocks; block++) {
                    const Floats weights = load_page(ranks + rank * stride + output + block * kWidth);
                    for (int64_t row = 0; row < kRows; row++) sums[row][block] += all(inner[row][first + rank]) * weights;
                }
            }
            for (int64_t row = 0; row < kRows; row++) {
                for (int64_t block = 0; block < kBlocks; block++) {
                    store(y[row] + output + block * kWidth, sums[row][block]);
                }
            }
        }
        for (; output < outputs; output++) {
            for (int64_t row = 0; row < kRows; row++) {
                for (int64_t rank = 0; rank < 4; rank++) {
                    const float weight = page_number(ranks[rank * stride + output]);
                    y[row][output] = std::fma(inner[row][first + rank], weight, y[row][output]);
                }
            }
        }
    }
}

template <int64_t kRows, typename T>
void add_lora_rows(const LoraRows& task, int64_t first) {
    const float* const* const x = task.x + first;
    alignas(64) float inner[kRows][kPageRank];
    const T* down = static_cast<const T*>(task.down);
    const T* up = static_cast<const T*>(task.up);
    float* y[kRows];
    for (int64_t row = 0; row < kRows; row++) y[row] = task.y[first + row];
    for (int64_t part = 0; part < task.num_parts; part++) {
        lora_down<kRows>(x, task.columns, down, inner);
        lora_up<kRows>(inner, up, task.outputs, task.parts[part], y);
        down += task.columns * kPageRank;
        up += task.parts[part];
        for (int64_t row = 0; row < kRows; row++) y[row] += task.parts[part];
    }
}

template <typename T>
void add_lora_of(const LoraRows& task) {
    int64_t row = 0;
    for (; row + kSharingRows <= task.rows; row += kSharingRows) add_lora_rows<kSharingRows, T>(task, row);
    if constexpr (kSharingRows > 2) {
        for (; row + 2 <= task.rows; row += 2) add_lora_rows<2, T>(task, row);
    }
    for (; row < task.rows; row++) add_lora_rows<1, T>(task, row);
}

void add_lora(const LoraRows& task) {
    if (task.is_brain) {
        add_lora_of<uint16_t>(task);
    } else {
        add_lora_of<float>(task);
    }
}

// y = (y - bias) * factor + bias, of which the bias has been taken
void scale_lora(const LoraRows& task, const float* bias) {
    const auto scale = [&](const auto* factors) {
        for (int64_t row = 0; row < task.rows; row++) {
            float* const y = task.y[row];
            for (int64_t i = 0; i < task.outputs; i++) {
                y[i] = y[i] * page_number(factors[i]) + (bias == nullptr ? 0.0f : bias[i]);
            }
        }
    };
    const int64_t first = kPageRank * task.outputs;
    if (task.is_brain) {
        scale(static_cast<const uint16_t*>(task.up) + first);
    } else {
        scale(static_cast<const float*>(task.up) + first);
    }
}

}  // namespace
}  // namespace quire
