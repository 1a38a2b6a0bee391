// Log probabilities of a token and of the likeliest ones, as quire/ops/reference/token_logprobs.py defines them.
#pragma once

#include "sample.hpp"

namespace quire {
namespace {

// The `most` likeliest to the front of `ids`; returns how many there are, which are fewer only where some are NaN.
inline int64_t find_likeliest(const Scores& logits, int64_t count, int64_t most, float* room, int32_t* ids) {
    if (most == 0) return 0;
    const float bound = bound_of(logits, most, room);
    int32_t* end = ids;
    for (int64_t stretch = 0; stretch < logits.stretches; stretch++) {
        if (!(logits.peaks[stretch] >= bound)) continue;
        for (int64_t id = stretch * kStretch; id < std::min(count, (stretch + 1) * kStretch); id++) {
            *end = static_cast<int32_t>(id);
            end += logits.values[id] >= bound;
        }
    }
    const int64_t found = std::min<int64_t>(most, end - ids);
    std::partial_sort(ids, ids + found, end, [&](int32_t a, int32_t b) {
        const float first = logits.values[a], second = logits.values[b];
        return first > second || (first == second && a < b);
    });
    return found;
}

// The token's place among all, from 1.
inline int32_t rank_of(const float* logits, int64_t count, int64_t token) {
    const float own = logits[token];
    int32_t rank = 0;
    for (int64_t id = 0; id < count; id++) rank += logits[id] > own;
    for (int64_t id = 0; id <= token; id++) rank += logits[id] == own;
    return rank;
}

inline void token_logprobs(const float* logits, int64_t count, int64_t token, int64_t most, float* scratch, int32_t* ids,
                           int32_t* packed) {
    const int64_t stretches = (count + kStretch - 1) / kStretch;
    float *values = scratch, *room = values + stretches * kStretch, *peaks = room + stretches * kStretch;
    std::copy(logits, logits + count, values);
    std::fill(values + count, values + stretches * kStretch, -INFINITY);
    find_peaks(values, stretches, peaks);
    float peak;
    argmax(logits, count, &peak);
    for (int64_t i = 0; i < count; i++) room[i] = logits[i] - peak;
    const auto mass = static_cast<float>(std::log(static_cast<double>(mass_of(room, count)) * 0x1p-40));
    const int64_t found = find_likeliest({values, stretches, peaks}, count, most, room, ids);
    packed[0] = rank_of(logits, count, token);
    for (int64_t place = 0; place <= most; place++) {
        const bool is_there = place <= found;
        const int32_t id = place == 0 ? static_cast<int32_t>(token) : is_there ? ids[place - 1] : 0;
        const float logprob = is_there ? (logits[id] - peak) - mass : NAN;
        packed[1 + place] = id;
        packed[2 + most + place] = bits_as<int32_t>(logprob);
    }
}

}  // namespace
}  // namespace quire
