// What happens to one row: norms, gates, rotation, storing, and the search for its largest value.
#include <algorithm>
#include <cstring>
#include <vector>

#include "check.hpp"

namespace quire {
namespace {

constexpr int64_t kCounts[] = {1, 3, 4, 7, 8, 15, 16, 17, 64, 101};

void test_rms_norm(const Kernels& kernels, Numbers& numbers, Checks& checks) {
    for (const int64_t columns : kCounts) {
        Exact<float> x(columns), weight(columns), out(columns);
        x.fill(numbers, -3, 3);
        weight.fill(numbers, -1, 1);
        const float offset = columns % 2 == 0 ? 1.0f : 0.0f;
        double squares = 0;
        for (int64_t i = 0; i < columns; i++) squares += static_cast<double>(x[i]) * x[i];
        const double root = std::sqrt(squares / static_cast<double>(columns) + 1e-5);
        kernels.rms_norm(x.get(), weight.get(), columns, 1e-5f, offset, out.get());
        std::vector<double> wanted(columns);
        for (int64_t i = 0; i < columns; i++) {
            wanted[i] = x[i] / root * (weight[i] + offset);
            checks.near(out[i], wanted[i], 4e-6, "rms_norm of " + std::to_string(columns));
        }
        kernels.rms_norm(x.get(), weight.get(), columns, 1e-5f, offset, x.get());
        for (int64_t i = 0; i < columns; i++) checks.near(x[i], wanted[i], 4e-6, "rms_norm in place");
    }
}

void test_layer_norm(const Kernels& kernels, Numbers& numbers, Checks& checks) {
    for (const int64_t columns : kCounts) {
        Exact<float> x(columns), weight(columns), bias(columns), out(columns);
        x.fill(numbers, 9, 13);
        weight.fill(numbers, -1, 1);
        bias.fill(numbers, -1, 1);
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < columns; i++) sum += x[i];
        const double mean = sum / static_cast<double>(columns);
        for (int64_t i = 0; i < columns; i++) squares += (x[i] - mean) * (x[i] - mean);
        const double root = std::sqrt(squares / static_cast<double>(columns) + 1e-3);
        kernels.layer_norm(x.get(), weight.get(), bias.get(), columns, 1e-3f, out.get());
        for (int64_t i = 0; i < columns; i++) {
            const double wanted = (x[i] - mean) / root * weight[i] + bias[i];
            checks.near(out[i], wanted, 2e-5, "layer_norm of " + std::to_string(columns));
        }
        kernels.layer_norm(x.get(), weight.get(), nullptr, columns, 1e-3f, out.get());
        for (int64_t i = 0; i < columns; i++) {
            checks.near(out[i], (x[i] - mean) / root * weight[i], 2e-5, "layer_norm without bias");
        }
    }
}

double activated(double x, Activation activation) {
    switch (activation) {
        case Activation::silu: return x / (1 + std::exp(-x));
        case Activation::relu: return std::max(x, 0.0);
        case Activation::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
        default: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
}

void test_gate(const Kernels& kernels, Numbers& numbers, Checks& checks) {
    for (const int64_t columns : kCounts) {
        for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
            for (const float width : {4.0f, 200.0f}) {
                Exact<float> gates(columns), up(columns), out(columns), alone(columns);
                gates.fill(numbers, -width, width);
                up.fill(numbers, -2, 2);
                kernels.gate(gates.get(), up.get(), columns, activation, out.get());
                kernels.gate(gates.get(), nullptr, columns, activation, alone.get());
                const std::string what = "gate " + std::to_string(static_cast<int>(activation)) + " of ";
                for (int64_t i = 0; i < columns; i++) {
                    const double wanted = activated(gates[i], activation);
                    const double allowed = 2e-6 * (std::abs(wanted) + 1);
                    checks.near(alone[i], wanted, allowed, what + std::to_string(gates[i]));
                    checks.near(out[i], wanted * up[i], 2 * allowed, what + std::to_string(gates[i]) + " with up");
                }
                kernels.gate(gates.get(), up.get(), columns, activation, gates.get());
                for (int64_t i = 0; i < columns; i++) checks.near(gates[i], out[i], 0, what + "its own place");
            }
        }
    }
}

void test_clamped_swiglu(const Kernels& kernels, Numbers& numbers, Checks& checks) {
    for (const int64_t columns : kCounts) {
        for (const float width : {4.0f, 20.0f, 200.0f}) {
            Exact<float> gates(columns), up(columns), out(columns);
            gates.fill(numbers, -width, width);
            up.fill(numbers, -width, width);
            kernels.gate(gates.get(), up.get(), columns, Activation::clamped_swiglu, out.get());
            for (int64_t i = 0; i < columns; i++) {
                const double gate = std::min(double{gates[i]}, 7.0), above = std::clamp(double{up[i]}, -7.0, 7.0) + 1;
                const double wanted = gate / (1 + std::exp(-1.702 * gate)) * above;
                checks.near(out[i], wanted, 4e-6 * (std::abs(wanted) + 1), "clamped_swiglu of " + std::to_string(gates[i]));
            }
        }
    }
}

void test_rotate(const Kernels& kernels, Numbers& numbers, Checks& checks) {
    for (const int64_t head_dim : {2, 14, 64, 80, 128}) {
        for (const int64_t half : {head_dim / 2, head_dim / 4}) {  // all of a head, or its first half
            const int64_t heads = 3;
            Exact<float> x(heads * head_dim), cos(half), sin(half);
            x.fill(numbers, -2, 2);
            for (int64_t i = 0; i < half; i++) {
                const float angle = numbers.between(-3, 3);
                cos[i] = std::cos(angle);
                sin[i] = std::sin(angle);
            }
            std::vector<float> before(x.get(), x.get() + x.count());
            kernels.rotate(x.get(), heads, head_dim, cos.get(), sin.get(), half);
            for (int64_t at = 0; at < x.count(); at++) {
                const int64_t i = at % head_dim, head = at - i;
                double wanted = before[at];
                if (i < half) wanted = before[at] * double{cos[i]} - before[at + half] * double{sin[i]};
                if (i >= half && i < 2 * half) {
                    wanted = before[at] * double{cos[i - half]} + before[head + i - half] * double{sin[i - half]};
                }
                checks.near(x[at], wanted, 2e-6, "rotate " + std::to_string(head_dim));
            }
        }
    }
}

void test_store_kv(const Kernels& kernels, Numbers& numbers, Checks& checks) {
    const float special[] = {
        0.0f, -0.0f, 1.0f, 65504.0f, 65519.9f, 65520.0f, -1e6f, 3e38f, 3.4e38f, INFINITY, -INFINITY, NAN,
        6e-8f, 2.9e-8f, 3e-8f, -6.1e-5f, 1e-40f, 1.00048828125f, 1.00390625f,
    };
    constexpr int64_t kSpecial = sizeof(special) / sizeof(special[0]);
    for (const int64_t count : {1, 7, 16, 19, 40, 1000}) {
        for (const KVType type : {KVType::f32, KVType::f16, KVType::bf16}) {
            Exact<float> values(count);
            for (int64_t i = 0; i < count; i++) {
                const float ordinary = std::ldexp(numbers.between(-2, 2), static_cast<int>(numbers.below(40)) - 25);
                values[i] = i < 2 * kSpecial ? special[i % kSpecial] : ordinary;
            }
            const int64_t size = type == KVType::f32 ? 4 : 2;
            Exact<uint8_t> out(count * size);
            kernels.store_kv(values.get(), count, type, out.get());
            for (int64_t i = 0; i < count; i++) {
                double found, wanted = values[i];
                if (type == KVType::f32) {
                    found = reinterpret_cast<const float*>(out.get())[i];
                } else {
                    const int mantissa = type == KVType::f16 ? kHalfMantissa : kBrainMantissa;
                    found = decoded(reinterpret_cast<const uint16_t*>(out.get())[i], mantissa);
                    wanted = nearest(wanted, mantissa);
                }
                checks.near(found, wanted, 0, "store_kv " + std::to_string(size) + " of " + std::to_string(values[i]));
                checks.expect(std::isnan(wanted) || std::signbit(found) == std::signbit(wanted), "store_kv's sign");
            }
        }
    }
}

void check_argmax(const Kernels& kernels, const Exact<float>& x, int64_t wanted, float wanted_peak, const char* what,
                  Checks& checks) {
    float peak = 0;
    const int64_t found = kernels.argmax(x.get(), x.count(), &peak);
    checks.near(peak, wanted_peak, 0, std::string("argmax: peak of ") + what + ", " + std::to_string(x.count()));
    if (wanted < 0) return;
    checks.expect(found == wanted, std::string("argmax: ") + what + " at " + std::to_string(wanted) + " of " +
                                       std::to_string(x.count()) + ", found " + std::to_string(found));
}

void test_argmax(const Kernels& kernels, Numbers& numbers, Checks& checks) {
    for (const int64_t count : kCounts) {
        for (int64_t at = 0; at < count; at += 1 + count / 9) {
            Exact<float> x(count);
            x.fill(numbers, -5, -1);
            x[at] = -0.5f;
            check_argmax(kernels, x, at, -0.5f, "the largest", checks);
            x[count - 1] = -0.5f;
            check_argmax(kernels, x, at, -0.5f, "the first of two", checks);
            x[at] = -INFINITY;
            float best = *std::max_element(x.get(), x.get() + count);
            check_argmax(kernels, x, -1, best, "-inf among others", checks);
            x[at] = INFINITY;
            check_argmax(kernels, x, at, INFINITY, "inf", checks);
            x[at] = NAN;
            check_argmax(kernels, x, -1, NAN, "NaN", checks);
        }
        Exact<float> x(count);
        check_argmax(kernels, x, 0, NAN, "nothing but NaN", checks);
        std::fill(x.get(), x.get() + count, -INFINITY);
        check_argmax(kernels, x, 0, -INFINITY, "nothing but -inf", checks);
        std::fill(x.get(), x.get() + count, 0.25f);
        check_argmax(kernels, x, 0, 0.25f, "all the same", checks);
    }
}

}  // namespace

void test_rows(const Kernels& kernels, Checks& checks) {
    Numbers numbers(2);
    test_rms_norm(kernels, numbers, checks);
    test_layer_norm(kernels, numbers, checks);
    test_gate(kernels, numbers, checks);
    test_clamped_swiglu(kernels, numbers, checks);
    test_rotate(kernels, numbers, checks);
    test_store_kv(kernels, numbers, checks);
    test_argmax(kernels, numbers, checks);
}

}  // namespace quire
