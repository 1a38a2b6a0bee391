// Runs every kernel of every variant that this machine runs against plain code: `test_kernels [VARIANT]...`.
#include <algorithm>
#include <cstring>

#include "check.hpp"
#include "isa.hpp"

namespace quire {

namespace {

// What the exponent of a float of 16 bits is too large by.
int exponent_bias(int mantissa) { return (1 << (14 - mantissa)) - 1; }

}  // namespace

double decoded(uint16_t bits, int mantissa) {
    const int bias = exponent_bias(mantissa), exponent = (bits & 0x7fff) >> mantissa;
    const int fraction = bits & ((1 << mantissa) - 1);
    const double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == 2 * bias + 1) return fraction != 0 ? NAN : sign * INFINITY;
    const int whole = exponent == 0 ? 0 : 1 << mantissa;
    return sign * std::ldexp(whole + fraction, std::max(exponent, 1) - bias - mantissa);
}

double nearest(double value, int mantissa) {
    if (!std::isfinite(value) || value == 0) return value;
    const int bias = exponent_bias(mantissa), exponent = std::max(std::ilogb(value), 1 - bias);
    const double step = std::ldexp(1.0, exponent - mantissa);
    const double rounded = std::nearbyint(value / step) * step;
    return std::abs(rounded) >= std::ldexp(1.0, bias + 1) ? std::copysign(INFINITY, value) : rounded;
}

uint16_t encoded(double value, int mantissa) {
    const int bias = exponent_bias(mantissa);
    const double magnitude = std::abs(value);
    const int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
    // a subnormal number's exponent is 0 and not 1: its missing first bit makes up for that when added
    const auto steps = static_cast<int>(std::ldexp(magnitude, mantissa - exponent));
    const int bits = ((exponent + bias - 1) << mantissa) + steps;
    return static_cast<uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0));
}

namespace {

bool wanted(const char* name, int count, char** names) {
    return count == 0 || std::any_of(names, names + count, [&](char* each) { return std::strcmp(each, name) == 0; });
}

bool passes(const Kernels& kernels) {
    Checks checks(kernels.name);
    test_multiply(kernels, checks);
    test_rows(kernels, checks);
    test_attend(kernels, checks);
    std::printf("%s: %lld of %lld checks failed\n", kernels.name, static_cast<long long>(checks.failed()),
                static_cast<long long>(checks.made()));
    return checks.failed() == 0;
}

}  // namespace
}  // namespace quire

int main(int count, char** arguments) {
    int ran = 0;
    bool passed = true;
    for (const quire::Kernels* kernels : quire::runnable_kernels()) {
        if (!quire::wanted(kernels->name, count - 1, arguments + 1)) continue;
        ran++;
        passed = quire::passes(*kernels) && passed;
    }
    if (count > 1 && ran < count - 1) {
        std::fprintf(stderr, "this machine runs %d of the %d variants asked for\n", ran, count - 1);
        return 2;
    }
    return passed ? 0 : 1;
}
