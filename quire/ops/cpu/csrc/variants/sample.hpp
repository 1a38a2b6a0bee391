// One token from one row of logits: temperature, filters and Gumbel noise as quire/ops/reference/sample_tokens.py and
// the modules it uses define them. Most of a vocabulary is too unlikely to matter, so the largest score of every stretch
// is found first, and what follows looks into few of them.
#pragma once

#include <algorithm>
#include <functional>

#include "../kernels.hpp"
#include "rows.hpp"

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

// The products of words, of which two lie side by side in a `Pairs`: only the lower of each two is multiplied.
typedef uint64_t Pairs __attribute__((vector_size(4 * kWidth)));

inline Pairs product_of_lower(Pairs a, Pairs b) {
#if defined(__AVX512F__)
    return bits_as<Pairs>(_mm512_mul_epu32(bits_as<__m512i>(a), bits_as<__m512i>(b)));
#elif defined(__AVX2__)
    return bits_as<Pairs>(_mm256_mul_epu32(bits_as<__m256i>(a), bits_as<__m256i>(b)));
#elif defined(__ARM_NEON)
    return bits_as<Pairs>(vmull_u32(vmovn_u64(bits_as<uint64x2_t>(a)), vmovn_u64(bits_as<uint64x2_t>(b))));
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// x * factor, of 64 bits, as two words.
inline void multiply_words(Words x, uint32_t factor, Words& high, Words& low) {
    const Pairs pairs = bits_as<Pairs>(x), factors = Pairs{} + factor, upper = Pairs{} + 0xffffffff00000000u;
    const Pairs even = product_of_lower(pairs, factors), odd = product_of_lower(pairs >> 32, factors);
    high = bits_as<Words>((even >> 32) | (odd & upper));
    low = bits_as<Words>((even & ~upper) | (odd << 32));
}

// Lanes of `a` and `b` in turn, from the lower half of them or from the upper.
template <bool kUpper, typename Vector, int... kLanes>
inline Vector lanes_in_turn(Vector a, Vector b, std::integer_sequence<int, kLanes...>) {
    constexpr int kCount = sizeof...(kLanes), kFirst = kUpper ? kCount / 2 : 0;
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (kFirst + kLanes / 2 + (kLanes % 2 ? kCount : 0))...);
#else
    const Vector lanes = {(kFirst + kLanes / 2 + (kLanes % 2 ? kCount : 0))...};
    return __builtin_shuffle(a, b, lanes);
#endif
}

template <bool kUpper, typename Vector>
inline Vector in_turn(Vector a, Vector b) {
    constexpr int kCount = static_cast<int>(sizeof(Vector) / sizeof(a[0]));
    return lanes_in_turn<kUpper>(a, b, std::make_integer_sequence<int, kCount>());
}

// The random words of 4 * kWidth tokens from `first` on, in their order: Philox4x32 with 7 rounds.
inline void random_words(int64_t first, const Draw& draw, Words (&words)[4]) {
    Words lanes;
    for (int64_t lane = 0; lane < kWidth; lane++) lanes[lane] = static_cast<uint32_t>(lane);
    const Words zero = {};
    Words counter[4] = {lanes + static_cast<uint32_t>(first / 4), zero + draw.position, zero + draw.stream, zero};
    auto low = static_cast<uint32_t>(draw.seed), high = static_cast<uint32_t>(draw.seed >> 32);
    for (int round = 0; round < 7; round++) {
        Words high0, low0, high2, low2;
        multiply_words(counter[0], 0xD2511F53u, high0, low0);
        multiply_words(counter[2], 0xCD9E8D57u, high2, low2);
        counter[0] = high2 ^ counter[1] ^ low;
        counter[1] = low2;
        counter[2] = high0 ^ counter[3] ^ high;
        counter[3] = low0;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    const auto below = bits_as<Pairs>(in_turn<false>(counter[0], counter[1]));
    const auto above = bits_as<Pairs>(in_turn<true>(counter[0], counter[1]));
    const auto below_too = bits_as<Pairs>(in_turn<false>(counter[2], counter[3]));
    const auto above_too = bits_as<Pairs>(in_turn<true>(counter[2], counter[3]));
    words[0] = bits_as<Words>(in_turn<false>(below, below_too));
    words[1] = bits_as<Words>(in_turn<true>(below, below_too));
    words[2] = bits_as<Words>(in_turn<false>(above, above_too));
    words[3] = bits_as<Words>(in_turn<true>(above, above_too));
}

// The largest that noise gets: -ln of the smallest v.
constexpr float kMostNoise = 23.0f;

// Scores of a row, in stretches of kStretch, the last of them filled up with -inf.
struct Scores {
    const float* values;
    int64_t stretches;
    const float* peaks;  // of each stretch
};

inline void find_peaks(const float* values, int64_t stretches, float* peaks) {
    for (int64_t stretch = 0; stretch < stretches; stretch++) {
        Floats largest = all(-INFINITY);
        for (int64_t at = 0; at < kStretch; at += kWidth) {
            largest = larger(load(values + stretch * kStretch + at), largest);  // never NaN
        }
        peaks[stretch] = largest_of(largest);
    }
}

// Those at or above `floor` to `found`, in their order; returns their end. NaN is above nothing.
inline float* gather(const Scores& scores, float floor, float* found) {
    for (int64_t stretch = 0; stretch < scores.stretches; stretch++) {
        if (!(scores.peaks[stretch] >= floor)) continue;
        const float* values = scores.values + stretch * kStretch;
        for (int64_t at = 0; at < kStretch; at++) {
            *found = values[at];
            found += values[at] >= floor;
        }
    }
    return found;
}

// A score that at least `wanted` of them reach, and few more.
inline float bound_of(const Scores& scores, int64_t wanted, float* room) {
    if (wanted > scores.stretches) return -INFINITY;
    std::copy(scores.peaks, scores.peaks + scores.stretches, room);
    std::nth_element(room, room + wanted - 1, room + scores.stretches, std::greater<float>());
    return room[wanted - 1];
}

// The k-th largest score, or that of the last if there are fewer.
inline float top_k_floor(const Scores& scores, int64_t top_k, float* room) {
    float* const end = gather(scores, bound_of(scores, top_k, room), room);
    if (end == room) return -INFINITY;
    float* const kth = room + std::min<int64_t>(top_k, end - room) - 1;
    std::nth_element(room, kth, end, std::greater<float>());
    return *kth;
}

// exp of scores up to 0 in units of 2**-40, rounded down: whole numbers, whose sums do not depend on their order.
inline int64_t mass_of(const float* scores, int64_t count) {
    constexpr int64_t kAtOnce = 64;  // as many lower halves add up in 32 bits
    int64_t mass = 0;
    for (int64_t begin = 0; begin < count; begin += kAtOnce * kWidth) {
        const int64_t end = std::min(count, begin + kAtOnce * kWidth);
        Ints upper = {}, lower = {};
        for (int64_t at = begin; at < end; at += kWidth) {
            Floats block = all(-INFINITY);
            if (at + kWidth <= end) {
                block = load(scores + at);
            } else {
                std::memcpy(&block, scores + at, sizeof(float) * (end - at));
            }
            const Floats weights = exp_of(block) * 0x1p16f;
            const Ints whole = __builtin_convertvector(weights, Ints);
            upper += whole;
            lower += __builtin_convertvector((weights - __builtin_convertvector(whole, Floats)) * 0x1p24f, Ints);
        }
        for (int64_t lane = 0; lane < kWidth; lane++) mass += upper[lane] * int64_t{1 << 24} + lower[lane];
    }
    return mass;
}

// The score of the last token that top-p keeps of those at or above `floor`: the least of which all that are likelier
// weigh less than top-p of all. Where it lies is narrowed down; nothing is sorted.
inline float top_p_floor(const Scores& scores, float floor, float top_p, float* room) {
    const bool is_whole = floor == -INFINITY;
    const int64_t count = is_whole ? scores.stretches * kStretch : gather(scores, floor, room) - room;
    const auto mass = static_cast<double>(mass_of(is_whole ? scores.values : room, count));
    const double allowed = static_cast<double>(top_p) * mass;
    // all tokens below this are together less than what top-p leaves out, so it leaves all of them out
    const double left_out = (1.0 - static_cast<double>(top_p)) * mass * 0x1p-40;
    const double least = std::log(left_out / static_cast<double>(count)) - 1e-3;
    float *begin = room, *end = gather(scores, std::max(floor, static_cast<float>(least)), room);
    float last = floor;
    double likelier = 0;
    while (begin < end) {
        const float a = *begin, b = begin[(end - begin) / 2], c = end[-1];
        const float pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
        float* const equal = std::partition(begin, end, [&](float score) { return score > pivot; });
        const double above = likelier + static_cast<double>(mass_of(begin, equal - begin));
        if (above >= allowed && equal != begin) {
            end = equal;
            continue;
        }
        float* const lesser = std::partition(equal, end, [&](float score) { return score == pivot; });
        last = pivot;
        likelier = above + static_cast<double>((lesser - equal) * mass_of(&pivot, 1));
        if (likelier >= allowed) break;
        begin = lesser;
    }
    return last;
}

inline float floor_of(const Scores& scores, int64_t count, const Draw& draw, float* room) {
    float floor = draw.min_p > 0 ? std::log(draw.min_p) : -INFINITY;
    if (draw.top_k > 0 && draw.top_k < count) floor = std::max(floor, top_k_floor(scores, draw.top_k, room));
    if (draw.top_p < 1) floor = std::max(floor, top_p_floor(scores, floor, draw.top_p, room));
    return floor;
}

// The token whose score with noise is largest. Tokens far below the best so far get no noise: it could not help them.
inline int64_t noisy_argmax(const Scores& scores, float floor, const Draw& draw) {
    float best = -INFINITY;
    int64_t found = 0;
    for (int64_t begin = 0; begin < scores.stretches * kStretch; begin += 4 * kWidth) {
        const float peak = scores.peaks[begin / kStretch];
        if (peak < floor || peak + kMostNoise < best) continue;
        Words words[4];
        random_words(begin, draw, words);
        for (int64_t part = 0; part < 4; part++) {
            const Floats values = load(scores.values + begin + part * kWidth);
            const Floats noisy = values >= all(floor) ? values + gumbel_of(words[part]) : all(-INFINITY);
            const float most = largest_of(noisy);
            if (!(most > best)) continue;
            best = most;
            int64_t lane = 0;
            while (noisy[lane] != most) lane++;
            found = begin + part * kWidth + lane;
        }
    }
    return found;
}

inline int64_t sample(const float* logits, int64_t count, const Draw& draw, float* scratch) {
    float peak;
    const int64_t likeliest = argmax(logits, count, &peak);
    if (draw.temperature <= 0) return likeliest;
    const int64_t stretches = (count + kStretch - 1) / kStretch;
    float *values = scratch, *room = values + stretches * kStretch, *peaks = room + stretches * kStretch;
    // differences to the peak: a tiny temperature sends them to -inf, never to +inf
    for (int64_t i = 0; i < count; i++) values[i] = (logits[i] - peak) / draw.temperature;
    std::fill(values + count, values + stretches * kStretch, -INFINITY);
    find_peaks(values, stretches, peaks);
    const Scores scores{values, stretches, peaks};
    return noisy_argmax(scores, floor_of(scores, count, draw, room), draw);
}

}  // namespace
}  // namespace quire
