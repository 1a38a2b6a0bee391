// One token from one row of logits: temperature, filters and Gumbel noise as quire/ops/reference/sample_tokens.py and
// the modules it uses define them.
#pragma once

#include <algorithm>
#include <functional>

#include "../kernels.hpp"
#include "vector.hpp"

namespace quire {
namespace {

// ln, for normal positive numbers, within 2 units of the last place.
inline Floats log_of(Floats x) {
    const Words bits = bits_as<Words>(x);
    Floats exponent = __builtin_convertvector(bits_as<Ints>(bits >> 23) - 126, Floats);
    Floats part = bits_as<Floats>((bits & 0x7fffff) | 0x3f000000);  // from 0.5 to 1
    const Floats root = all(0.70710678f), one = all(1.0f), zero = {};
    exponent = exponent - (part < root ? one : zero);
    part = part + (part < root ? part : zero) - 1.0f;
    const Floats square = part * part;
    Floats series = all(7.0376836292e-2f);
    series = series * part - 1.1514610310e-1f;
    series = series * part + 1.1676998740e-1f;
    series = series * part - 1.2420140846e-1f;
    series = series * part + 1.4249322787e-1f;
    series = series * part - 1.6668057665e-1f;
    series = series * part + 2.0000714765e-1f;
    series = series * part - 2.4999993993e-1f;
    series = series * part + 3.3333331174e-1f;
    Floats result = series * part * square;
    result = result + exponent * -2.12194440e-4f - square * 0.5f;  // ln 2 in two parts
    return part + result + exponent * 0.693359375f;
}

// -ln(-ln(1 - v)) for v = (word + 0.5) / 2**32. Small v is the tail that decides whether rare tokens are ever drawn, so
// 1 - v must not round it away: ln(u) * v / (1 - u) is exact to the last places for u = 1 - v as rounded.
inline Floats gumbel_of(Words words) {
    const Floats most = all(1.0f - 0x1p-24f), one = all(1.0f);
    Floats v = (__builtin_convertvector(words, Floats) + 0.5f) * 0x1p-32f;
    v = v < most ? v : most;
    const Floats u = one - v;
    const Floats exact = log_of(u) * v / (u - one);
    return -log_of(u == one ? v : exact);
}

// Philox4x32 with 7 rounds.
inline void philox(uint32_t (&counter)[4], uint32_t low, uint32_t high) {
    for (int round = 0; round < 7; round++) {
        const uint64_t first = uint64_t{counter[0]} * 0xD2511F53u, second = uint64_t{counter[2]} * 0xCD9E8D57u;
        const uint32_t mixed = static_cast<uint32_t>(second >> 32) ^ counter[1] ^ low;
        const uint32_t other = static_cast<uint32_t>(first >> 32) ^ counter[3] ^ high;
        counter[0] = mixed;
        counter[1] = static_cast<uint32_t>(second);
        counter[2] = other;
        counter[3] = static_cast<uint32_t>(first);
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
}

// The largest that noise gets: -ln of the smallest v.
constexpr float kMostNoise = 23.0f;

// Weights in whole units, so that sums do not depend on their order.
inline int64_t softmax_weight(float score) {
    const Floats weight = exp_of(all(score));
    return static_cast<int64_t>(weight[0] * 0x1p40f);
}

inline int64_t mass_above(const float* scores, int64_t count, float floor) {
    int64_t mass = 0;
    for (int64_t begin = 0; begin < count; begin += kWidth) {
        float block[kWidth];
        for (int64_t lane = 0; lane < kWidth; lane++) {
            block[lane] = begin + lane < count && scores[begin + lane] >= floor ? scores[begin + lane] : -INFINITY;
        }
        const Floats weights = exp_of(load(block)) * 0x1p40f;
        for (int64_t lane = 0; lane < kWidth; lane++) mass += static_cast<int64_t>(weights[lane]);
    }
    return mass;
}

// The score of the last token that top-p keeps of those at or above `floor`.
inline float top_p_floor(const float* scores, int64_t count, float floor, float top_p, float* ordered) {
    const auto allowed = static_cast<double>(top_p) * static_cast<double>(mass_above(scores, count, floor));
    float* const end = std::copy_if(scores, scores + count, ordered, [&](float score) { return score >= floor; });
    int64_t likelier = 0;
    float* sorted = ordered;
    float last = ordered == end ? floor : *std::max_element(ordered, end);
    for (int64_t taken = 64; sorted < end; taken *= 8) {  // the nucleus is mostly small, so most is never sorted
        float* const next = sorted + std::min<int64_t>(taken, end - sorted);
        std::partial_sort(sorted, next, end, std::greater<float>());
        for (; sorted < next; sorted++) {
            if (static_cast<double>(likelier) >= allowed && sorted != ordered) return last;
            last = *sorted;
            likelier += softmax_weight(*sorted);
        }
    }
    return last;
}

inline float floor_of(const float* scores, int64_t count, const Draw& draw, float* ordered) {
    float floor = draw.min_p > 0 ? std::log(draw.min_p) : -INFINITY;
    if (draw.top_k > 0 && draw.top_k < count) {
        std::copy(scores, scores + count, ordered);
        std::nth_element(ordered, ordered + draw.top_k - 1, ordered + count, std::greater<float>());
        floor = std::max(floor, ordered[draw.top_k - 1]);
    }
    if (draw.top_p < 1) floor = std::max(floor, top_p_floor(scores, count, floor, draw.top_p, ordered));
    return floor;
}

// The token whose score with noise is largest. Tokens far below the best so far get no noise: it could not help them.
inline int64_t noisy_argmax(const float* scores, int64_t count, float floor, const Draw& draw) {
    constexpr int64_t kStretch = 64;
    float best = -INFINITY;
    int64_t found = 0;
    for (int64_t begin = 0; begin < count; begin += kStretch) {
        const int64_t end = std::min(count, begin + kStretch);
        const float most = *std::max_element(scores + begin, scores + end);
        if (most < floor || most + (draw.temperature > 0 ? kMostNoise : 0.0f) < best) continue;
        uint32_t words[kStretch] = {};
        for (int64_t id = begin; id < end && draw.temperature > 0; id += 4) {
            uint32_t counter[4] = {static_cast<uint32_t>(id / 4), draw.position, draw.stream, 0};
            philox(counter, static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32));
            std::copy(counter, counter + 4, words + (id - begin));
        }
        for (int64_t id = begin; id < end; id += kWidth) {
            Words block;
            std::memcpy(&block, words + (id - begin), sizeof(block));
            const Floats noise = draw.temperature > 0 ? gumbel_of(block) : Floats{};
            for (int64_t lane = 0; lane < kWidth && id + lane < end; lane++) {
                const float score = scores[id + lane];
                if (score >= floor && score + noise[lane] > best) {
                    best = score + noise[lane];
                    found = id + lane;
                }
            }
        }
    }
    return found;
}

inline int64_t sample(const float* logits, int64_t count, const Draw& draw, float* scratch) {
    float *scores = scratch, *ordered = scratch + count;
    float peak;
    argmax(logits, count, &peak);
    const float temperature = draw.temperature > 0 ? draw.temperature : 1.0f;
    // differences to the peak: a tiny temperature sends them to -inf, never to +inf
    for (int64_t i = 0; i < count; i++) scores[i] = (logits[i] - peak) / temperature;
    return noisy_argmax(scores, count, floor_of(scores, count, draw, ordered), draw);
}

}  // namespace
}  // namespace quire
