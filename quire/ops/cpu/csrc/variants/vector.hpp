// Vectors of floats as wide as the instruction set has them. The compiler's own vector types carry the arithmetic; what
// they cannot say (float16, sums across a vector) is here once per instruction set.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace quire {
namespace {

#if defined(__AVX512F__)
constexpr int64_t kWidth = 16;
#elif defined(__AVX2__)
constexpr int64_t kWidth = 8;
#else
constexpr int64_t kWidth = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));
typedef uint16_t Halves __attribute__((vector_size(2 * kWidth)));

template <typename To, typename From>
inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To result;
    std::memcpy(&result, &value, sizeof(result));
    return result;
}

inline Floats load(const float* from) {
    Floats value;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

inline void store(float* to, Floats value) { std::memcpy(to, &value, sizeof(value)); }

inline Floats all(float value) {
#if defined(__ARM_NEON)  // where GCC would set one lane after the other
    return vdupq_n_f32(value);
#else
    return value - Floats{};  // GCC 12 broadcasts this in one instruction, and a loop over lanes in many
#endif
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// Half precision

inline float float_of_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
    if (exponent == 0) {  // zero and subnormal numbers
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return bits_as<float>(sign | bits_as<uint32_t>(magnitude));
    }
    const uint32_t wide = exponent == 31 ? 0xff : exponent + 112;
    return bits_as<float>(sign | wide << 23 | mantissa << 13);
}

inline uint16_t half_of_float(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x7f800000) return sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00);
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds beyond the largest half
    if (magnitude < 0x38800000) {                        // subnormal: count steps of 2**-24, to the nearest even
        return sign | static_cast<uint16_t>(std::nearbyint(bits_as<float>(magnitude) * 0x1p24f));
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | static_cast<uint16_t>((rounded >> 13) - (112 << 10));
}

inline float float_of_brain(uint16_t brain) { return bits_as<float>(static_cast<uint32_t>(brain) << 16); }

inline uint16_t brain_of_float(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays NaN
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline Floats load_half(const uint16_t* from) {
#if defined(__AVX512F__)
    return bits_as<Floats>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__AVX2__)
    return bits_as<Floats>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__ARM_NEON)
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    Floats result;
    for (int64_t lane = 0; lane < kWidth; lane++) result[lane] = float_of_half(from[lane]);
    return result;
#endif
}

inline void store_half(uint16_t* to, Floats value) {
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(bits_as<__m512>(value), 0));
#elif defined(__AVX2__)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(bits_as<__m256>(value), 0));
#elif defined(__ARM_NEON)
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(bits_as<float32x4_t>(value))));
#else
    for (int64_t lane = 0; lane < kWidth; lane++) to[lane] = half_of_float(value[lane]);
#endif
}

inline Floats load_brain(const uint16_t* from) {
#if defined(__AVX512F__)  // GCC 12 widens a vector half by half
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return bits_as<Floats>(_mm512_slli_epi32(wide, 16));
#elif defined(__AVX2__)
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return bits_as<Floats>(_mm256_slli_epi32(wide, 16));
#elif defined(__ARM_NEON)
    return bits_as<Floats>(vshll_n_u16(vld1_u16(from), 16));
#else
    Halves narrow;
    std::memcpy(&narrow, from, sizeof(narrow));
    return bits_as<Floats>(__builtin_convertvector(narrow, Words) << 16);
#endif
}

// To bfloat16 in the low half of each lane, to the nearest even. Not for NaN: kernels that meet one must keep it.
inline Words rounded_brains(Floats value) {
    const Words bits = bits_as<Words>(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline void store_brain(uint16_t* to, Floats value) {
    const Words quiet_nan = Words{} + 0x7fc0;
    const Words brains = value == value ? rounded_brains(value) : quiet_nan;
#if defined(__ARM_NEON)  // GCC 12 converts vectors of 8 bytes lane by lane
    vst1_u16(to, vmovn_u32(bits_as<uint32x4_t>(brains)));
#else
    const Halves narrow = __builtin_convertvector(brains, Halves);
    std::memcpy(to, &narrow, sizeof(narrow));
#endif
}

// The low byte of each lane.
inline void store_bytes(int8_t* to, Ints value) {
#if defined(__ARM_NEON)
    const int16x4_t halves = vmovn_s32(bits_as<int32x4_t>(value));
    const auto bytes = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(halves, halves))), 0);
    std::memcpy(to, &bytes, sizeof(bytes));
#else
    typedef int8_t Narrow __attribute__((vector_size(kWidth)));
    const Narrow narrow = __builtin_convertvector(value, Narrow);
    std::memcpy(to, &narrow, sizeof(narrow));
#endif
}

// kWidth bytes as floats.
inline Floats load_bytes_as_floats(const int8_t* from) {
#if defined(__AVX512F__)
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return bits_as<Floats>(_mm512_cvtepi32_ps(wide));
#elif defined(__AVX2__)
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return bits_as<Floats>(_mm256_cvtepi32_ps(wide));
#elif defined(__ARM_NEON)
    int32_t bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    const int16x8_t halves = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)));
    return bits_as<Floats>(vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves))));
#else
    Floats result;
    for (int64_t lane = 0; lane < kWidth; lane++) result[lane] = static_cast<float>(from[lane]);
    return result;
#endif
}

// 2 ** (byte - 127) for kWidth bytes, 0 for 0.
inline Floats load_exponents(const uint8_t* from) {
#if defined(__AVX512F__)
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return bits_as<Floats>(_mm512_slli_epi32(wide, 23));
#elif defined(__AVX2__)
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return bits_as<Floats>(_mm256_slli_epi32(wide, 23));
#elif defined(__ARM_NEON)
    int32_t bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    const uint16x8_t halves = vmovl_u8(vreinterpret_u8_s32(vdup_n_s32(bytes)));
    return bits_as<Floats>(vshlq_n_u32(vmovl_u16(vget_low_u16(halves)), 23));
#else
    Words bits;
    for (int64_t lane = 0; lane < kWidth; lane++) bits[lane] = static_cast<uint32_t>(from[lane]) << 23;
    return bits_as<Floats>(bits);
#endif
}

// Across a vector

inline float sum_of(Floats value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(bits_as<__m512>(value));
#elif defined(__aarch64__)
    return vaddvq_f32(bits_as<float32x4_t>(value));
#else
    float sum = 0;
    for (int64_t lane = 0; lane < kWidth; lane++) sum += value[lane];
    return sum;
#endif
}

// Lane i of sums_of is the sum of vector i: a transposition that adds on its way. `vectors` is used up.
#if defined(__aarch64__)

inline Floats sums_of(Floats (&vectors)[kWidth]) {
    return vpaddq_f32(vpaddq_f32(vectors[0], vectors[1]), vpaddq_f32(vectors[2], vectors[3]));
}

#else

// Lanes whose number has the bit `kBit` come from `b`, the others from `a`; each is added to its neighbour at that bit.
template <int kBit, int... kLanes>
inline Floats fold(Floats a, Floats b, std::integer_sequence<int, kLanes...>) {
    constexpr int kFromB = static_cast<int>(kWidth);
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (kLanes + (kLanes & kBit ? kFromB : 0))...) +
           __builtin_shufflevector(a, b, ((kLanes ^ kBit) + (kLanes & kBit ? kFromB : 0))...);
#else
    const Ints straight = {(kLanes + (kLanes & kBit ? kFromB : 0))...};
    const Ints crossed = {((kLanes ^ kBit) + (kLanes & kBit ? kFromB : 0))...};
    return __builtin_shuffle(a, b, straight) + __builtin_shuffle(a, b, crossed);
#endif
}

template <int kBit>
inline Floats fold(Floats a, Floats b) {
    return fold<kBit>(a, b, std::make_integer_sequence<int, static_cast<int>(kWidth)>());
}

inline Floats sums_of(Floats (&vectors)[kWidth]) {
    for (int64_t i = 0; i < kWidth / 2; i++) vectors[i] = fold<1>(vectors[2 * i], vectors[2 * i + 1]);
    for (int64_t i = 0; i < kWidth / 4; i++) vectors[i] = fold<2>(vectors[2 * i], vectors[2 * i + 1]);
    if (kWidth > 4) {
        for (int64_t i = 0; i < kWidth / 8; i++) vectors[i] = fold<4 % kWidth>(vectors[2 * i], vectors[2 * i + 1]);
    }
    if (kWidth > 8) vectors[0] = fold<8 % kWidth>(vectors[0], vectors[1]);
    return vectors[0];
}

#endif

inline float largest_of(Floats value) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps(bits_as<__m512>(value));
#elif defined(__aarch64__)
    return vmaxvq_f32(bits_as<float32x4_t>(value));
#endif
    float largest = value[0];
    for (int64_t lane = 1; lane < kWidth; lane++) largest = value[lane] > largest ? value[lane] : largest;
    return largest;
}

// exp, within 2 units of the last place; 0 below -87.3, its largest value above 88.3. Adding and subtracting
// 1.5 * 2**23 rounds to a whole number.
inline Floats exp_of(Floats x) {
    const Floats low = all(-87.33f), high = all(88.37f), magic = all(12582912.0f);
    const Floats clamped = x < low ? low : (x > high ? high : x);
    const Floats whole = (clamped * 1.44269504f + magic) - magic;
    const Floats rest = (clamped - whole * 0.693359375f) - whole * -2.12194440e-4f;  // ln 2 in two parts
    Floats power = all(1.9875691500e-4f);
    power = power * rest + 1.3981999507e-3f;
    power = power * rest + 8.3334519073e-3f;
    power = power * rest + 4.1665795894e-2f;
    power = power * rest + 1.6666665459e-1f;
    power = power * rest + 5.0000001201e-1f;
    power = power * rest * rest + rest + 1.0f;
    const Ints exponent = (__builtin_convertvector(whole, Ints) + 127) << 23;
    const Floats result = power * bits_as<Floats>(exponent);
    return x < low ? all(0.0f) : result;
}

}  // namespace
}  // namespace quire
