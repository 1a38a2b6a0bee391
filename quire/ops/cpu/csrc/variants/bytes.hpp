// Dot products of bytes: one group of a panel with the int8 columns of a few rows of activations, in 32-bit sums. This
// is all that instruction sets do differently when they multiply.
#pragma once

#include <type_traits>

#include "../layouts.hpp"
#include "vector.hpp"

namespace quire {
namespace {

typedef int8_t Bytes __attribute__((vector_size(4 * kWidth)));

// Registers that hold one number for each of a panel's 16 rows.
constexpr int kParts = static_cast<int>(16 / kWidth);

inline Bytes load_bytes(const void* from) {
    Bytes value;
    std::memcpy(&value, from, sizeof(value));
    return value;
}

inline Bytes low_nibbles(Bytes packed) { return packed & 0x0f; }

inline Bytes high_nibbles(Bytes packed) {
#if defined(__ARM_NEON)
    return bits_as<Bytes>(vshrq_n_u8(bits_as<uint8x16_t>(packed), 4));
#else
    return bits_as<Bytes>(bits_as<Words>(packed) >> 4) & 0x0f;
#endif
}

// 8 columns of as many rows as a register holds: the first 4 of each, and the last 4.
struct EightColumns {
    Bytes first, last;
};

inline EightColumns eight_columns(const Q4Group& group, int64_t chunk, int part) {
    const Bytes packed = load_bytes(group.q + 64 * chunk + 4 * kWidth * part);
    return {low_nibbles(packed), high_nibbles(packed)};
}

inline EightColumns eight_columns(const Q8Group& group, int64_t chunk, int part) {
    const int8_t* q = group.q + 128 * chunk + 4 * kWidth * part;
    return {load_bytes(q), load_bytes(q + 64)};
}

// Above 0, so that they are multiplied as nibbles are: what a group's minimum takes off again.
constexpr int8_t kFloatsAbove = 12;

// By code, once for every 16 bytes of a register.
struct FloatTable {
    alignas(64) int8_t above[64] = {};

    constexpr FloatTable() {
        for (int i = 0; i < 64; i++) above[i] = static_cast<int8_t>(kDoubledFloats[i % 16] + kFloatsAbove);
    }
};
constexpr FloatTable kFloatTable;

// What codes of E2M1 stand for, times two and kFloatsAbove more.
inline Bytes floats_of(Bytes codes) {
#if defined(__AVX512F__)
    return bits_as<Bytes>(_mm512_shuffle_epi8(_mm512_load_si512(kFloatTable.above), bits_as<__m512i>(codes)));
#elif defined(__AVX2__)
    const __m256i above = _mm256_load_si256(reinterpret_cast<const __m256i*>(kFloatTable.above));
    return bits_as<Bytes>(_mm256_shuffle_epi8(above, bits_as<__m256i>(codes)));
#elif defined(__ARM_NEON)
    return bits_as<Bytes>(vqtbl1q_s8(vld1q_s8(kFloatTable.above), bits_as<uint8x16_t>(codes)));
#else
    for (int64_t i = 0; i < 4 * kWidth; i++) codes[i] = kFloatTable.above[codes[i]];
    return codes;
#endif
}

inline EightColumns eight_columns(const Mxfp4Group& group, int64_t chunk, int part) {
    const Bytes packed = load_bytes(group.q + 64 * chunk + 4 * kWidth * part);
    return {floats_of(low_nibbles(packed)), floats_of(high_nibbles(packed))};
}

// Whether what becomes of a group's nibbles is multiplied: bytes from 0 to 24.
template <typename Group>
constexpr bool kIsNibbles = std::is_same<Group, Q4Group>::value || std::is_same<Group, Mxfp4Group>::value;

// Sums of dot products begin here, and are floats afterwards. NEON begins with the bits of 1.5 * 2^23: what is added to
// them is a whole number of units of that float, and one subtraction, which both vector pipes of a Neoverse do, replaces
// a conversion, which one does every other cycle. No sum of a group reaches 2^22.
#if defined(__ARM_NEON)
constexpr float kSumsBegin = 12582912.0f;
inline Ints begin_sums() { return bits_as<Ints>(Floats{} + kSumsBegin); }
inline Floats as_floats(Ints sums) { return bits_as<Floats>(sums) - kSumsBegin; }
#else
inline Ints begin_sums() { return Ints{}; }
inline Floats as_floats(Ints sums) { return __builtin_convertvector(sums, Floats); }
#endif

#if !defined(__ARM_NEON)  // which has neon.hpp

#if defined(__AVX512VNNI__)

// Weights of 0 to 24 times signed activations.
inline Ints dot_nibbles(Ints sums, Bytes weights, Bytes x) {
    return bits_as<Ints>(_mm512_dpbusd_epi32(bits_as<__m512i>(sums), bits_as<__m512i>(weights), bits_as<__m512i>(x)));
}

// Signed weights times signed activations; the sum is too large by kBytesBias times the sum of the activations.
inline Ints dot_bytes(Ints sums, Bytes weights, Bytes x) {
    return dot_nibbles(sums, weights ^ static_cast<int8_t>(-128), x);
}
constexpr float kBytesBias = 128;

#elif defined(__AVXVNNI__)

inline Ints dot_nibbles(Ints sums, Bytes weights, Bytes x) {
    return bits_as<Ints>(
        _mm256_dpbusd_avx_epi32(bits_as<__m256i>(sums), bits_as<__m256i>(weights), bits_as<__m256i>(x)));
}

inline Ints dot_bytes(Ints sums, Bytes weights, Bytes x) {
    return dot_nibbles(sums, weights ^ static_cast<int8_t>(-128), x);
}
constexpr float kBytesBias = 128;

#elif defined(__AVX2__)

inline Ints add_pairs(Ints sums, __m256i pairs) {
    return sums + bits_as<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

inline Ints dot_nibbles(Ints sums, Bytes weights, Bytes x) {
    return add_pairs(sums, _mm256_maddubs_epi16(bits_as<__m256i>(weights), bits_as<__m256i>(x)));
}

// 127 * 127 * 2 fits 16 bits, as neither packed weights nor activations are ever -128.
inline Ints dot_bytes(Ints sums, Bytes weights, Bytes x) {
    const __m256i magnitudes = _mm256_abs_epi8(bits_as<__m256i>(x));
    const __m256i signs_moved = _mm256_sign_epi8(bits_as<__m256i>(weights), bits_as<__m256i>(x));
    return add_pairs(sums, _mm256_maddubs_epi16(magnitudes, signs_moved));
}
constexpr float kBytesBias = 0;

#else

inline Ints dot_bytes(Ints sums, Bytes weights, Bytes x) {
    for (int64_t row = 0; row < kWidth; row++) {
        for (int64_t column = 4 * row; column < 4 * row + 4; column++) {
            sums[row] += static_cast<int32_t>(weights[column]) * static_cast<int32_t>(x[column]);
        }
    }
    return sums;
}

inline Ints dot_nibbles(Ints sums, Bytes weights, Bytes x) { return dot_bytes(sums, weights, x); }
constexpr float kBytesBias = 0;

#endif

// The same 4 columns of an activation for every row.
inline Bytes for_all_rows(const int8_t* x) {
    int32_t quad;
    std::memcpy(&quad, x, sizeof(quad));
    return bits_as<Bytes>(quad - Ints{});
}

template <typename Group>
inline Ints dot(Ints sums, Bytes weights, const int8_t* x) {
    return kIsNibbles<Group> ? dot_nibbles(sums, weights, for_all_rows(x)) : dot_bytes(sums, weights, for_all_rows(x));
}

// kCount parts of a group's 8 columns from 8 * chunk on times those of kRows rows.
template <int kRows, int kCount, typename Group>
inline void dot_chunk(const Group& group, int64_t chunk, int first_part, const int8_t (*rows)[kGroup],
                      Ints (&sums)[kRows][kCount]) {
    for (int part = 0; part < kCount; part++) {
        const EightColumns weights = eight_columns(group, chunk, first_part + part);
        for (int row = 0; row < kRows; row++) {
            const int8_t* x = rows[row] + 8 * chunk;
            sums[row][part] = dot<Group>(sums[row][part], weights.first, x);
            sums[row][part] = dot<Group>(sums[row][part], weights.last, x + 4);
        }
    }
}

template <int kRows, int kCount, typename Group>
inline void dot_group(const Group& group, int first_part, const int8_t (*rows)[kGroup], Ints (&sums)[kRows][kCount]) {
    if constexpr (kWidth == 16 || kRows == 1) {
        dot_chunk(group, 0, first_part, rows, sums);
        dot_chunk(group, 1, first_part, rows, sums);
        dot_chunk(group, 2, first_part, rows, sums);
        dot_chunk(group, 3, first_part, rows, sums);
    } else {  // with 16 registers, GCC spills what it unrolls
#pragma GCC unroll 1
        for (int64_t chunk = 0; chunk < 4; chunk++) dot_chunk(group, chunk, first_part, rows, sums);
    }
}

#endif

}  // namespace
}  // namespace quire
