// A and B of LoRA adapters, a page of 16 ranks at a time. Plain loops over 16 lanes, which compilers turn into vectors.
#pragma once

#include <cstdint>

namespace quire {
namespace {

constexpr int64_t kPageRank = 16;

// out[rank] = Σ x[column] * weights[column][rank]
void lora_down(const float* __restrict x, int64_t columns, const float* __restrict weights, float* __restrict out) {
    // four sums at once: one would wait for its last addition every time
    float sums[4][kPageRank] = {};
    int64_t column = 0;
    for (; column + 4 <= columns; column += 4) {
        for (int64_t part = 0; part < 4; part++) {
            const float value = x[column + part];
            const float* const row = weights + (column + part) * kPageRank;
            for (int64_t rank = 0; rank < kPageRank; rank++) sums[part][rank] += value * row[rank];
        }
    }
    for (; column < columns; column++) {
        for (int64_t rank = 0; rank < kPageRank; rank++) sums[0][rank] += x[column] * weights[column * kPageRank + rank];
    }
    for (int64_t rank = 0; rank < kPageRank; rank++) {
        out[rank] = (sums[0][rank] + sums[1][rank]) + (sums[2][rank] + sums[3][rank]);
    }
}

// out[column] += Σ inner[rank] * weights[rank][column], whose rows are `stride` apart
void lora_up(const float* __restrict inner, const float* __restrict weights, int64_t stride, int64_t columns,
             float* __restrict out) {
    for (int64_t rank = 0; rank < kPageRank; rank += 4) {
        const float a = inner[rank], b = inner[rank + 1], c = inner[rank + 2], d = inner[rank + 3];
        if (a == 0 && b == 0 && c == 0 && d == 0) continue;  // ranks that the adapter does not have
        const float *const first = weights + rank * stride, *const second = first + stride;
        const float *const third = second + stride, *const fourth = third + stride;
        for (int64_t i = 0; i < columns; i++) {
            out[i] += (a * first[i] + b * second[i]) + (c * third[i] + d * fourth[i]);
        }
    }
}

}  // namespace
}  // namespace quire
