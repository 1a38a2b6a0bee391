#include "angles.hpp"

namespace quire {

namespace {

constexpr double kQuarterTurn = 1.57079632679489661923;
constexpr double kToInteger = 0x1.8p52;  // added and taken away again, it rounds to the nearest integer

// Series about 0, for at most an eighth of a turn: what is left out is below 2e-9.
double sin_of(double x) {
    const double square = x * x;
    return x + x * square * (-1.0 / 6 + square * (1.0 / 120 + square * (-1.0 / 5040 + square / 362880)));
}

double cos_of(double x) {
    const double square = x * x;
    const double tail = square * (-1.0 / 720 + square * (1.0 / 40320 - square / 3628800));
    return 1 + square * (-0.5 + square * (1.0 / 24 + tail));
}

}  // namespace

// No branches and no calls within the loop, so that compilers make vectors of it.
void rope_angles(const int64_t* positions, int64_t num_tokens, const float* frequencies, int64_t stride, int64_t half,
                 float factor, float* __restrict cos, float* __restrict sin) {
    for (int64_t token = 0; token < num_tokens; token++) {
        const auto position = static_cast<float>(positions[token]);
        for (int64_t i = 0; i < half; i++) {
            const double angle = position * frequencies[i];
            const double turns = (angle * (1 / kQuarterTurn) + kToInteger) - kToInteger;
            const auto quadrant = static_cast<int32_t>(turns);
            const double rest = angle - turns * kQuarterTurn;
            const double s = sin_of(rest), c = cos_of(rest);
            const double along = quadrant & 1 ? s : c, across = quadrant & 1 ? c : s;
            cos[i] = static_cast<float>((quadrant + 1) & 2 ? -along : along) * factor;
            sin[i] = static_cast<float>(quadrant & 2 ? -across : across) * factor;
        }
        frequencies += stride;
        cos += half;
        sin += half;
    }
}

}  // namespace quire
