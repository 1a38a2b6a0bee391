// What happens to one row of activations between matmuls: norms, gates, rotation, storing.
#pragma once

#include <algorithm>

#include "../kernels.hpp"
#include "vector.hpp"

namespace quire {
namespace {

inline void rms_norm(const float* x, const float* weight, int64_t columns, float eps, float offset, float* out) {
    Floats squares = {};
    int64_t column = 0;
    for (; column + kWidth <= columns; column += kWidth) {
        const Floats value = load(x + column);
        squares += value * value;
    }
    float sum = sum_of(squares);
    for (; column < columns; column++) sum += x[column] * x[column];
    const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(columns) + eps);
    for (column = 0; column + kWidth <= columns; column += kWidth) {
        store(out + column, load(x + column) * inverse * (load(weight + column) + offset));
    }
    for (; column < columns; column++) out[column] = x[column] * inverse * (weight[column] + offset);
}

inline void layer_norm(const float* x, const float* weight, const float* bias, int64_t columns, float eps,
                       float* out) {
    double sum = 0, squares = 0;  // the difference of two large numbers, so in double
    for (int64_t column = 0; column < columns; column++) sum += x[column];
    const double mean = sum / static_cast<double>(columns);
    for (int64_t column = 0; column < columns; column++) {
        const double difference = x[column] - mean;
        squares += difference * difference;
    }
    const auto inverse = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(columns) + eps));
    const auto middle = static_cast<float>(mean);
    if (bias == nullptr) {
        for (int64_t column = 0; column < columns; column++) out[column] = (x[column] - middle) * inverse * weight[column];
        return;
    }
    for (int64_t column = 0; column < columns; column++) {
        out[column] = (x[column] - middle) * inverse * weight[column] + bias[column];
    }
}

inline Floats silu(Floats x) { return x / (exp_of(-x) + 1.0f); }

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))), and (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y))
inline Floats gelu_tanh(Floats x) {
    const Floats inner = x * (x * x * 0.044715f + 1.0f) * 1.5957691216f;
    return x / (exp_of(-inner) + 1.0f);
}

inline Floats gelu(Floats x) {
    for (int64_t lane = 0; lane < kWidth; lane++) {
        x[lane] = 0.5f * x[lane] * (1.0f + std::erf(x[lane] * 0.70710678118f));
    }
    return x;
}

inline Floats relu(Floats x) { return larger(all(0.0f), x); }  // in this order NaN stays

inline Floats activate(Floats x, Activation activation) {
    switch (activation) {
        case Activation::silu: return silu(x);
        case Activation::gelu_tanh: return gelu_tanh(x);
        case Activation::relu: return relu(x);
        default: return gelu(x);
    }
}

// gpt-oss's: gate * sigmoid(1.702 gate) * (up + 1), both clamped, gates from above alone. In this order NaN stays.
inline Floats clamped_swiglu(Floats gate, Floats up) {
    const Floats most = all(7.0f), least = all(-7.0f);
    gate = most < gate ? most : gate;
    up = most < up ? most : (up < least ? least : up);
    return gate / (exp_of(gate * -1.702f) + 1.0f) * (up + 1.0f);
}

inline Floats gated(Floats gate, Floats up, Activation activation) {
    return activation == Activation::clamped_swiglu ? clamped_swiglu(gate, up) : activate(gate, activation) * up;
}

inline void gate(const float* gates, const float* up, int64_t columns, Activation activation, float* out) {
    int64_t column = 0;
    for (; column + kWidth <= columns; column += kWidth) {
        const Floats value = load(gates + column);
        store(out + column, up == nullptr ? activate(value, activation) : gated(value, load(up + column), activation));
    }
    if (column < columns) {
        float rest[kWidth] = {}, rest_up[kWidth] = {};
        std::copy(gates + column, gates + columns, rest);
        if (up != nullptr) std::copy(up + column, up + columns, rest_up);
        const Floats value = load(rest);
        const Floats result = up == nullptr ? activate(value, activation) : gated(value, load(rest_up), activation);
        for (int64_t lane = 0; column < columns; lane++, column++) out[column] = result[lane];
    }
}

// Pairs are (i, i + half).
inline void rotate(float* heads, int64_t num_heads, int64_t head_dim, const float* cos, const float* sin,
                   int64_t half) {
    for (int64_t head = 0; head < num_heads; head++, heads += head_dim) {
        int64_t i = 0;
        for (; i + kWidth <= half; i += kWidth) {
            const Floats first = load(heads + i), second = load(heads + half + i);
            const Floats c = load(cos + i), s = load(sin + i);
            store(heads + i, first * c - second * s);
            store(heads + half + i, second * c + first * s);
        }
        for (; i < half; i++) {
            const float first = heads[i], second = heads[half + i];
            heads[i] = first * cos[i] - second * sin[i];
            heads[half + i] = second * cos[i] + first * sin[i];
        }
    }
}

inline void store_kv(const float* values, int64_t count, KVType type, uint8_t* out) {
    if (type == KVType::f32) {
        std::copy(values, values + count, reinterpret_cast<float*>(out));
        return;
    }
    auto* to = reinterpret_cast<uint16_t*>(out);
    const auto store_narrow = type == KVType::f16 ? store_half : store_brain;
    const auto narrow = type == KVType::f16 ? half_of_float : brain_of_float;
    int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) store_narrow(to + i, load(values + i));
    for (; i < count; i++) to[i] = narrow(values[i]);
}

// With the scale that maps the largest magnitude to 127.
inline float store_kv_bytes(const float* values, int64_t count, int8_t* out) {
    const int64_t whole = count / kWidth * kWidth;
    Floats largest = {}, poison = {};
    for (int64_t i = 0; i < whole; i += kWidth) {
        const Floats value = load(values + i);
        largest = larger(largest, larger(value, -value));
        poison += value - value;  // 0, or NaN where a value is NaN or infinite
    }
    float magnitude = largest_of(largest), spoilt = sum_of(poison);
    for (int64_t i = whole; i < count; i++) {
        magnitude = std::max(magnitude, std::fabs(values[i]));
        spoilt += values[i] - values[i];
    }
    if (spoilt != 0) {  // bytes cannot hold it: the scale must
        std::fill(out, out + count, int8_t{1});
        return NAN;
    }
    const float inverse = magnitude > 1e-30f ? 127.0f / magnitude : 0.0f;  // of less it would be infinite
    const Floats magic = all(12582912.0f);  // rounds to the nearest whole number when added
    for (int64_t i = 0; i < whole; i += kWidth) {
        store_bytes(out + i, bits_as<Ints>(load(values + i) * inverse + magic) - bits_as<Ints>(magic));
    }
    for (int64_t i = whole; i < count; i++) out[i] = static_cast<int8_t>(std::nearbyint(values[i] * inverse));
    return magnitude / 127.0f;
}

inline int64_t argmax(const float* x, int64_t count, float* peak) {
    // stretch by stretch, so that in the end the place is looked for in one of them only
    constexpr int64_t kStretch = 64 * kWidth;
    // NaN compares false with everything, so it is looked for on its own: adding shows it
    Floats poison = {};
    float best = -INFINITY;
    int64_t found = 0;
    for (int64_t begin = 0; begin < count; begin += kStretch) {
        const int64_t end = std::min(count, begin + kStretch);
        Floats largest = all(-INFINITY);
        int64_t i = begin;
        for (; i + kWidth <= end; i += kWidth) {
            const Floats value = load(x + i);
            largest = larger(value, largest);
            poison += value - value;  // 0, or NaN where the value is NaN or infinite
        }
        float best_here = largest_of(largest);
        for (; i < end; i++) {
            best_here = x[i] > best_here ? x[i] : best_here;
            poison[0] += x[i] - x[i];
        }
        if (best_here > best) {
            best = best_here;
            found = begin;
        }
    }
    while (found < count && x[found] != best) found++;
    *peak = best;
    bool is_nan = found == count;
    if (sum_of(poison) != 0) {  // -inf is fine; NaN is not
        for (int64_t at = 0; at < count && !is_nan; at++) is_nan = x[at] != x[at];
    }
    if (is_nan) *peak = NAN;
    return found == count ? 0 : found;
}

}  // namespace
}  // namespace quire
