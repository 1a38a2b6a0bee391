#include "packing.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "variants/vector.hpp"

namespace quire {

namespace {

uint16_t half_at(const uint8_t* from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof(half));
    return half;
}

// The group of a row, and the row's place in it.
struct Place {
    uint8_t* group;
    int64_t lane;
};

// Column within a group of 4 bits, whose codes begin at `codes`.
void set_q4(uint8_t* codes, int64_t lane, int64_t column, uint8_t q) {
    uint8_t& both = codes[64 * (column / 8) + 4 * lane + column % 4];
    both |= column % 8 < 4 ? q : static_cast<uint8_t>(q << 4);
}

void set_q8(Q8Group& group, int64_t lane, int64_t column, int8_t q) {
    group.q[64 * (column / 4) + 4 * lane + column % 4] = q == -128 ? int8_t{-127} : q;  // kernels count on it
}

// ggml's 16 bytes of nibbles: byte i holds columns i and 16 + i.
void set_nibbles(uint8_t* codes, int64_t lane, const uint8_t* nibbles) {
    for (int64_t i = 0; i < 16; i++) {
        set_q4(codes, lane, i, nibbles[i] & 0xf);
        set_q4(codes, lane, 16 + i, nibbles[i] >> 4);
    }
}

void pack_q4_0(const uint8_t* block, Q4Group& group, int64_t lane) {
    const uint16_t scale = half_at(block);
    group.scale[lane] = scale;
    group.minimum[lane] = half_of_float(float_of_half(scale) * -8.0f);
    set_nibbles(group.q, lane, block + 2);
}

void pack_q4_1(const uint8_t* block, Q4Group& group, int64_t lane) {
    group.scale[lane] = half_at(block);
    group.minimum[lane] = half_at(block + 2);
    set_nibbles(group.q, lane, block + 4);
}

void pack_mxfp4(const uint8_t* block, Mxfp4Group& group, int64_t lane) {
    group.exponent[lane] = block[0];
    set_nibbles(group.q, lane, block + 1);
}

// 256 columns: two scales, 12 bytes of eight 6-bit scales and minima, 128 bytes of nibbles.
void pack_q4_k(const uint8_t* block, Q4Group* groups, int64_t lane) {
    const float scale = float_of_half(half_at(block)), minimum = float_of_half(half_at(block + 2));
    const uint8_t* small = block + 4;
    for (int64_t part = 0; part < 8; part++) {
        const bool early = part < 4;
        const int s = early ? small[part] & 63 : (small[part + 4] & 0xf) | (small[part - 4] >> 6) << 4;
        const int m = early ? small[part + 4] & 63 : (small[part + 4] >> 4) | (small[part] >> 6) << 4;
        groups[part].scale[lane] = half_of_float(scale * static_cast<float>(s));
        groups[part].minimum[lane] = half_of_float(-minimum * static_cast<float>(m));
        const uint8_t* nibbles = block + 16 + part / 2 * 32;
        for (int64_t i = 0; i < 32; i++) {
            set_q4(groups[part].q, lane, i, part % 2 == 0 ? nibbles[i] & 0xf : nibbles[i] >> 4);
        }
    }
}

void pack_q8_0(const uint8_t* block, Q8Group& group, int64_t lane) {
    group.scale[lane] = half_at(block);
    for (int64_t i = 0; i < kGroup; i++) set_q8(group, lane, i, static_cast<int8_t>(block[2 + i]));
}

void pack_floats_q8(const float* values, int64_t count, Q8Group& group, int64_t lane) {
    float largest = 0, poison = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = std::max(largest, std::abs(values[i]));
        poison += values[i] - values[i];  // 0, or NaN where a value is NaN or infinite
    }
    const uint16_t scale = poison == 0 ? half_of_float(largest * kFloatScale / 127.0f) : uint16_t{0x7e00};
    group.scale[lane] = scale;
    if (poison != 0) {  // a damaged file must not look like a good one
        set_q8(group, lane, 0, 1);
        return;
    }
    const float step = float_of_half(scale) / kFloatScale;
    for (int64_t i = 0; i < count && step > 0; i++) {
        const float q = std::nearbyint(values[i] / step);
        set_q8(group, lane, i, static_cast<int8_t>(std::clamp(q, -127.0f, 127.0f)));
    }
}

template <typename Element>
void pack_dense(const uint8_t* from, int64_t columns, int64_t lane, uint8_t* panel) {
    for (int64_t column = 0; column < columns; column++) {
        std::memcpy(panel + (column * kPanel + lane) * sizeof(Element), from + column * sizeof(Element),
                    sizeof(Element));
    }
}

}  // namespace

int64_t source_row_bytes(Source source, int64_t columns) {
    switch (source) {
        case Source::q4_0: return columns / 32 * 18;
        case Source::q4_1: return columns / 32 * 20;
        case Source::q4_k: return columns / 256 * 144;
        case Source::q8_0: return columns / 32 * 34;
        case Source::mxfp4: return columns / 32 * 17;
        case Source::f32: return columns * 4;
        default: return columns * 2;
    }
}

void pack_matrix_row(Source source, const uint8_t* from, int64_t columns, Layout layout, int64_t row, uint8_t* data) {
    uint8_t* panel = data + row / kPanel * panel_bytes(layout, round_up(columns, kGroup));
    const int64_t lane = row % kPanel;
    auto* q4 = reinterpret_cast<Q4Group*>(panel);
    auto* q8 = reinterpret_cast<Q8Group*>(panel);
    auto* mxfp4 = reinterpret_cast<Mxfp4Group*>(panel);
    if (source == Source::q4_k) {
        for (int64_t block = 0; block < columns / 256; block++) pack_q4_k(from + block * 144, q4 + block * 8, lane);
        return;
    }
    if (layout == Layout::f32) return pack_dense<float>(from, columns, lane, panel);
    if (layout == Layout::f16 || layout == Layout::bf16) return pack_dense<uint16_t>(from, columns, lane, panel);
    const int64_t groups = round_up(columns, kGroup) / kGroup;
    for (int64_t group = 0; group < groups; group++) {
        const int64_t count = std::min(kGroup, columns - group * kGroup);
        switch (source) {
            case Source::q4_0: pack_q4_0(from + group * 18, q4[group], lane); break;
            case Source::q4_1: pack_q4_1(from + group * 20, q4[group], lane); break;
            case Source::q8_0: pack_q8_0(from + group * 34, q8[group], lane); break;
            case Source::mxfp4: pack_mxfp4(from + group * 17, mxfp4[group], lane); break;
            default:
                pack_floats_q8(reinterpret_cast<const float*>(from) + group * kGroup, count, q8[group], lane);
        }
    }
}

}  // namespace quire
