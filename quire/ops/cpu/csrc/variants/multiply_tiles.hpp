// Matmuls on AMX, in tiles of 16 rows of activations × 16 rows of a panel. A panel's weights become bfloat16, whatever
// their layout, and serve all rows; sums over all columns stay in a tile, in float32.
#pragma once

#include "amx.hpp"
#include "multiply.hpp"

namespace quire {
namespace {

#if defined(__AMX_BF16__)

// Bytes of an expanded panel: for each pair of columns 16 rows of two bfloat16.
constexpr int64_t expanded_bytes(int64_t columns) { return round_up(columns, kGroup) * kPanel * 2; }

// Two columns of 16 rows, side by side in each row's 32 bits.
inline void store_pair(uint8_t* to, Floats even, Floats odd) {
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                                6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const auto both = bits_as<__m512i>(_mm512_cvtne2ps_pbh(bits_as<__m512>(odd), bits_as<__m512>(even)));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(interleave, both));
}

inline void expand(const uint16_t* values, int64_t columns, Floats (*from_half)(const uint16_t*), uint8_t* to) {
    for (int64_t column = 0; column < columns; column += 2, to += 64) {
        store_pair(to, from_half(values + column * kPanel), from_half(values + (column + 1) * kPanel));
    }
}

// 128 + q for the 4 bits q that `kShift` brings to bit 16 of each lane: there they are whole numbers of a float's
// fraction.
template <int kShift>
inline Floats nibbles_above_128(Words bytes) {
    const Words at_16 = kShift >= 0 ? bytes << (kShift & 31) : bytes >> (-kShift & 31);
    return bits_as<Floats>((at_16 & 0x000f0000u) | 0x43000000u);
}

inline void expand(const Q4Group* groups, int64_t count, const Reading& reading, uint8_t* to) {
    for (int64_t group = 0; group < count; group++, groups++) {
        fetch_ahead<sizeof(Q4Group)>(groups, reading);
        const Floats scale = load_half(groups->scale), offset = load_half(groups->minimum) - 128.0f * scale;
        for (int64_t chunk = 0; chunk < 4; chunk++, to += 256) {
            Words bytes;
            std::memcpy(&bytes, groups->q + 64 * chunk, 64);
            const auto weights = [&](Floats q) { return q * scale + offset; };
            store_pair(to, weights(nibbles_above_128<16>(bytes)), weights(nibbles_above_128<8>(bytes)));
            store_pair(to + 64, weights(nibbles_above_128<0>(bytes)), weights(nibbles_above_128<-8>(bytes)));
            store_pair(to + 128, weights(nibbles_above_128<12>(bytes)), weights(nibbles_above_128<4>(bytes)));
            store_pair(to + 192, weights(nibbles_above_128<-4>(bytes)), weights(nibbles_above_128<-12>(bytes)));
        }
    }
}

// Four columns, whose bytes `weights` makes numbers of.
template <typename Weights>
inline void expand_four(Bytes columns, Weights weights, uint8_t* to) {
    const auto bytes = bits_as<Ints>(columns);
    const auto value = [&](Ints q) { return weights(__builtin_convertvector(q, Floats)); };
    store_pair(to, value(bytes << 24 >> 24), value(bytes << 16 >> 24));
    store_pair(to + 64, value(bytes << 8 >> 24), value(bytes >> 24));
}

inline void expand(const Q8Group* groups, int64_t count, const Reading& reading, uint8_t* to) {
    for (int64_t group = 0; group < count; group++, groups++) {
        fetch_ahead<sizeof(Q8Group)>(groups, reading);
        const Floats scale = load_half(groups->scale);
        for (int64_t chunk = 0; chunk < 8; chunk++, to += 128) {
            expand_four(load_bytes(groups->q + 64 * chunk), [&](Floats q) { return q * scale; }, to);
        }
    }
}

inline void expand(const Mxfp4Group* groups, int64_t count, const Reading& reading, uint8_t* to) {
    for (int64_t group = 0; group < count; group++, groups++) {
        fetch_ahead<sizeof(Mxfp4Group)>(groups, reading);
        const Floats scale = scale_of(*groups, 0), offset = minimum_of(*groups, 0);
        const auto weights = [&](Floats q) { return q * scale + offset; };
        for (int64_t chunk = 0; chunk < 4; chunk++, to += 256) {
            const EightColumns columns = eight_columns(*groups, chunk, 0);
            expand_four(columns.first, weights, to);
            expand_four(columns.last, weights, to + 128);
        }
    }
}

inline void expand_panel(const Matrix& matrix, int64_t panel, const Reading& reading, uint8_t* to) {
    const uint8_t* data = matrix.panel(panel);
    const int64_t columns = matrix.padded_columns(), groups = columns / kGroup;
    const auto* halves = reinterpret_cast<const uint16_t*>(data);
    switch (matrix.layout) {
        case Layout::q4: return expand(reinterpret_cast<const Q4Group*>(data), groups, reading, to);
        case Layout::q8: return expand(reinterpret_cast<const Q8Group*>(data), groups, reading, to);
        case Layout::mxfp4: return expand(reinterpret_cast<const Mxfp4Group*>(data), groups, reading, to);
        case Layout::f16: return expand(halves, columns, load_half, to);
        case Layout::bf16: return expand(halves, columns, load_brain, to);
        case Layout::f32: return;  // never comes in bfloat16
    }
}

// 32 rows of activations times two expanded panels. `out` is [32][32]. Vectors have no part in it, so `meanwhile` is
// called at every step.
template <typename Meanwhile>
inline void tiles_2x2(const uint8_t* above, const uint8_t* below, const uint8_t* left, const uint8_t* right,
                      int64_t steps, float* out, Meanwhile meanwhile) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps; step++) {
        const int64_t here = kBrainStep * step, next = here + kBrainStep;
        _tile_loadd(4, above + here, 64);
        _tile_loadd(6, left + here, 64);
        _tile_loadd(7, right + here, 64);
        _tile_loadd(5, below + here, 64);
        _tile_dpbf16ps(0, 4, 6);
        fetch_tile(above + next);
        _tile_dpbf16ps(1, 4, 7);
        fetch_tile(left + next);
        _tile_dpbf16ps(2, 5, 6);
        fetch_tile(below + next);
        _tile_dpbf16ps(3, 5, 7);
        fetch_tile(right + next);
        meanwhile();
    }
    _tile_stored(0, out, 128);
    _tile_stored(1, out + 16, 128);
    _tile_stored(2, out + 16 * 32, 128);
    _tile_stored(3, out + 16 * 32 + 16, 128);
}

// The same for the last 16 rows.
template <typename Meanwhile>
inline void tiles_1x2(const uint8_t* x, const uint8_t* left, const uint8_t* right, int64_t steps, float* out,
                      Meanwhile meanwhile) {
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t step = 0; step < steps; step++) {
        const int64_t here = kBrainStep * step, next = here + kBrainStep;
        _tile_loadd(4, x + here, 64);
        _tile_loadd(6, left + here, 64);
        _tile_loadd(7, right + here, 64);
        _tile_dpbf16ps(0, 4, 6);
        fetch_tile(left + next);
        _tile_dpbf16ps(1, 4, 7);
        fetch_tile(right + next);
        meanwhile();
    }
    _tile_stored(0, out, 128);
    _tile_stored(1, out + 16, 128);
}

// Where a panel's sums go, and what is done to them on the way.
struct PanelOut {
    const Matmul* matmul;
    int64_t first_output, outputs;  // of the matrix's rows
    Floats bias = {};

    PanelOut(const Matmul& matmul, int64_t panel)
        : matmul(&matmul),
          first_output(panel * kPanel),
          outputs(std::min(kPanel, matmul.matrix->rows - first_output)) {
        const float* biases = matmul.matrix->bias;
        for (int64_t i = 0; biases != nullptr && i < outputs; i++) bias[i] = biases[first_output + i];
    }

    float* row(int64_t index) const { return matmul->out + index * matmul->stride + first_output; }

    void write(const float* sums, int64_t index) const {
        const Floats value = load(sums) * matmul->matrix->factor + bias;
        if (outputs == kPanel) {
            store(row(index), value);
        } else {
            std::memcpy(row(index), &value, outputs * sizeof(float));
        }
    }
};

// Rows of sums that tiles have left, [rows][32], for one panel or two. A few are written at each step of the next
// block: all at once they would hold up the tiles behind them, as memory takes long to be written.
struct WaitingRows {
    PanelOut out[2];
    int64_t panels;
    const float* sums;
    int64_t row, last;

    void write(int64_t most) {
        for (const int64_t end = std::min(last, row + most); row < end; row++, sums += 32) {
            for (int64_t half = 0; half < panels; half++) out[half].write(sums + half * kPanel, row);
        }
    }
};

// Rows of a block that is being computed: the memory they will be written to comes meanwhile, a few at each step. All
// asked for at once, tiles would wait behind them.
struct ComingRows {
    const PanelOut (&out)[2];
    int64_t row, last;

    void fetch(int64_t most) {
        for (const int64_t end = std::min(last, row + most); row < end; row++) {
            for (const PanelOut& panel : out) __builtin_prefetch(panel.row(row), 1);
        }
    }
};

inline void multiply_in_tiles(const Matmul& matmul, int64_t first, int64_t last, uint8_t* scratch) {
    const TilesInUse tiles(whole_tiles());
    const Matrix& matrix = *matmul.matrix;
    const int64_t size = expanded_bytes(matrix.columns), steps = matrix.padded_columns() / kGroup;
    const int64_t rows_a_step = (32 + steps - 1) / steps;
    alignas(64) float sums[2][32 * 32];
    float *coming = sums[0], *written = sums[1];
    WaitingRows waiting{{{matmul, first}, {matmul, first}}, 0, written, 0, 0};
    for (int64_t panel = first; panel < last; panel += 2) {
        const int64_t panels = std::min<int64_t>(2, last - panel);
        for (int64_t half = 0; half < panels; half++) {
            expand_panel(matrix, panel + half, matmul.reading, scratch + half * size);
        }
        const uint8_t* right = panels == 2 ? scratch + size : scratch;
        const PanelOut out[2] = {{matmul, panel}, {matmul, panel + panels - 1}};
        for (int64_t row = 0; row < matmul.rows; row += 32) {
            const int64_t rows = std::min<int64_t>(32, matmul.rows - row);
            ComingRows of_this{out, row, row + rows};
            const auto meanwhile = [&] {
                waiting.write(rows_a_step);
                of_this.fetch(rows_a_step);
            };
            if (rows > 16) {
                tiles_2x2(matmul.x.row(row), matmul.x.row(row + 16), scratch, right, steps, coming, meanwhile);
            } else {
                tiles_1x2(matmul.x.row(row), scratch, right, steps, coming, meanwhile);
            }
            waiting = {{out[0], out[1]}, panels, coming, row, row + rows};
            std::swap(coming, written);
        }
    }
    waiting.write(32);
}

#endif

}  // namespace
}  // namespace quire
