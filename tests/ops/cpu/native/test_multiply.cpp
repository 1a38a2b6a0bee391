// Matmuls, their matrices and their activations, against sums in double precision over the values that the layouts'
// description gives.
#include <algorithm>
#include <cstring>
#include <vector>

#include "check.hpp"

namespace quire {
namespace {

constexpr Layout kLayouts[] = {Layout::q4, Layout::q8, Layout::f32, Layout::f16, Layout::bf16, Layout::mxfp4};
constexpr const char* kLayoutNames[] = {"q4", "q8", "f32", "f16", "bf16", "mxfp4"};

std::string named(const char* what, Layout layout, int64_t rows, int64_t columns) {
    return std::string(what) + " " + kLayoutNames[static_cast<int>(layout)] + " [" + std::to_string(rows) + ", " +
           std::to_string(columns) + "]";
}

// A matrix in a kernel layout, and the values it stands for.
struct Sample {
    Exact<uint8_t> data;
    std::vector<double> values;  // [rows][columns]
    Exact<float> bias;
    Matrix matrix;

    Sample(Layout layout, int64_t rows, int64_t columns, bool has_bias, Numbers& numbers)
        : data(round_up(rows, kPanel) / kPanel * panel_bytes(layout, round_up(columns, kGroup))),
          values(rows * columns),
          bias(rows),
          matrix{layout, data.get(), rows, columns, 0.25f, has_bias ? bias.get() : nullptr} {
        std::fill(data.get(), data.get() + data.count(), uint8_t{0});
        bias.fill(numbers, -1, 1);
        for (int64_t row = 0; row < rows; row++) {
            for (int64_t first = 0; first < columns; first += kGroup) fill_group(row, first, numbers);
        }
    }

    double value(int64_t row, int64_t column) const { return values[row * matrix.columns + column]; }

private:
    void fill_group(int64_t row, int64_t first, Numbers& numbers) {
        const int64_t lane = row % kPanel, last = std::min(first + kGroup, matrix.columns);
        uint8_t* panel = data.get() + row / kPanel * panel_bytes(matrix.layout, matrix.padded_columns());
        const uint16_t scale = encoded(nearest(numbers.between(0.01f, 0.1f), kHalfMantissa), kHalfMantissa);
        const uint16_t minimum = encoded(nearest(numbers.between(-1, 0.5f), kHalfMantissa), kHalfMantissa);
        const double step = decoded(scale, kHalfMantissa), offset = decoded(minimum, kHalfMantissa);
        auto& q4 = reinterpret_cast<Q4Group*>(panel)[first / kGroup];
        auto& q8 = reinterpret_cast<Q8Group*>(panel)[first / kGroup];
        auto& mxfp4 = reinterpret_cast<Mxfp4Group*>(panel)[first / kGroup];
        const auto exponent = static_cast<int>(numbers.below(4)) - 6;
        if (matrix.layout == Layout::q4) {
            q4.scale[lane] = scale;
            q4.minimum[lane] = minimum;
        } else if (matrix.layout == Layout::q8) {
            q8.scale[lane] = scale;
        } else if (matrix.layout == Layout::mxfp4) {
            mxfp4.exponent[lane] = static_cast<uint8_t>(127 + exponent);
        }
        for (int64_t column = first; column < last; column++) {
            const int64_t within = column - first;
            double& value = values[row * matrix.columns + column];
            if (matrix.layout == Layout::q4) {
                const auto q = static_cast<uint8_t>(numbers.below(16));
                set_nibble(q4.q, lane, within, q);
                value = step * q + offset;
            } else if (matrix.layout == Layout::mxfp4) {
                const auto code = static_cast<uint8_t>(numbers.below(16));
                set_nibble(mxfp4.q, lane, within, code);
                value = std::ldexp(2 * small_float(code), exponent);
            } else if (matrix.layout == Layout::q8) {
                const auto q = static_cast<int8_t>(numbers.below(255) - 127);
                q8.q[64 * (within / 4) + 4 * lane + within % 4] = q;
                value = step * q;
            } else {
                value = set_dense(panel, column * kPanel + lane, numbers.between(-1, 1));
            }
        }
    }

    static void set_nibble(uint8_t* codes, int64_t lane, int64_t within, uint8_t code) {
        codes[64 * (within / 8) + 4 * lane + within % 4] |= within % 8 < 4 ? code : static_cast<uint8_t>(code << 4);
    }

    // E2M1: a sign, two bits of exponent and one of fraction.
    static double small_float(uint8_t code) {
        const int exponent = code >> 1 & 3, fraction = code & 1;
        const double magnitude = exponent == 0 ? 0.5 * fraction : std::ldexp(1 + 0.5 * fraction, exponent - 1);
        return code & 8 ? -magnitude : magnitude;
    }

    double set_dense(uint8_t* panel, int64_t at, float value) {
        if (matrix.layout == Layout::f32) {
            reinterpret_cast<float*>(panel)[at] = value;
            return value;
        }
        const int mantissa = matrix.layout == Layout::f16 ? kHalfMantissa : kBrainMantissa;
        const double rounded = nearest(value, mantissa);
        reinterpret_cast<uint16_t*>(panel)[at] = encoded(rounded, mantissa);
        return rounded;
    }
};

// The first `columns` values that a packed row stands for.
std::vector<double> unpacked(const Activations& x, int64_t row, int64_t columns) {
    std::vector<double> values(columns);
    for (int64_t column = 0; column < columns; column++) {
        const int64_t group = column / kGroup, within = column % kGroup;
        if (x.format == Format::f32) {
            values[column] = reinterpret_cast<const float*>(x.row(row))[column];
        } else if (x.format == Format::bf16) {
            const auto* brains = reinterpret_cast<const uint16_t*>(x.row(row) + group * kBrainStep);
            values[column] = decoded(brains[within], kBrainMantissa);
        } else {
            const int64_t place = row % kRowTile;
            const ByteGroup& bytes = x.byte_groups(row - place)[group];
            values[column] = static_cast<double>(bytes.numbers[place].scale) * bytes.columns[place][within];
        }
    }
    return values;
}

// Rows behind the last, which tiles may read, are NaN.
struct Packed {
    Exact<uint8_t> data;
    Activations activations;

    Packed(const Kernels& kernels, Format format, int64_t rows, int64_t columns, Numbers& numbers)
        : data(round_up(rows, 16) * row_bytes(format, columns)), activations{format, data.get(), columns} {
        Exact<float> x(columns);
        for (int64_t row = 0; row < rows; row++) {
            x.fill(numbers, -2, 2);
            kernels.pack_row(x.get(), columns, format, data.get(), row);
        }
    }
};

void check_matmul(const Sample& sample, const Packed& packed, int64_t rows, const Exact<float>& out, int64_t stride,
                  Checks& checks) {
    const Matrix& matrix = sample.matrix;
    const bool in_tiles = packed.activations.format == Format::bf16;  // weights are rounded to bfloat16, too
    const std::string what = named("multiply", matrix.layout, matrix.rows, matrix.columns);
    for (int64_t row = 0; row < rows; row++) {
        const auto x = unpacked(packed.activations, row, matrix.columns);
        for (int64_t output = 0; output < matrix.rows; output++) {
            double sum = 0, magnitude = 0;
            for (int64_t column = 0; column < matrix.columns; column++) {
                const double term = x[column] * sample.value(output, column) * matrix.factor;
                sum += term;
                magnitude += std::abs(term);
            }
            if (matrix.bias != nullptr) sum += matrix.bias[output];
            const double allowed = (magnitude + 1) * (in_tiles ? 0x1p-8 : 4e-6);
            checks.near(out[row * stride + output], sum, allowed,
                        what + ", row " + std::to_string(row) + " of " + std::to_string(rows) + ", output " +
                            std::to_string(output));
        }
        for (int64_t gap = matrix.rows; gap < stride && row + 1 < rows; gap++) {
            checks.expect(std::isnan(out[row * stride + gap]), what + " wrote between its rows");
        }
    }
}

// Row `row` as the first of rows that begin at `to`.
void copy_row(const Activations& from, int64_t row, uint8_t* to) {
    const int64_t groups = round_up(from.columns, kGroup) / kGroup;
    const uint8_t* at = from.row(row);
    if (from.format == Format::f32) {
        std::copy(at, at + row_bytes(from.format, from.columns), to);
    } else if (from.format == Format::bf16) {
        for (int64_t group = 0; group < groups; group++) {
            std::copy(at + group * kBrainStep, at + group * kBrainStep + 64, to + group * kBrainStep);
        }
    } else {
        const ByteGroup* given = from.byte_groups(row - row % kRowTile);
        auto* copies = reinterpret_cast<ByteGroup*>(to);
        for (int64_t group = 0; group < groups; group++) {
            std::copy(given[group].columns[row % kRowTile], given[group].columns[row % kRowTile] + kGroup,
                      copies[group].columns[0]);
            copies[group].numbers[0] = given[group].numbers[row % kRowTile];
        }
    }
}

// A row's result is the same bits whatever other rows are multiplied with it.
void check_alone(const Kernels& kernels, const Sample& sample, const Packed& packed, int64_t row, const float* together,
                 Checks& checks) {
    const Matrix& matrix = sample.matrix;
    const Format format = packed.activations.format;
    Exact<uint8_t> x(kRowTile * row_bytes(format, matrix.columns));
    copy_row(packed.activations, row, x.get());
    Exact<float> out(matrix.rows);
    Exact<uint8_t> scratch(kernels.multiply_scratch(matrix.columns));
    const Matmul matmul{&matrix, {packed.activations.format, x.get(), matrix.columns}, 1, out.get(), matrix.rows, {}};
    kernels.multiply(matmul, 0, matrix.panels(), scratch.get());
    const std::string what = named("multiply", matrix.layout, matrix.rows, matrix.columns);
    checks.expect(std::memcmp(out.get(), together, matrix.rows * sizeof(float)) == 0,
                  what + " of one row differs from its result as row " + std::to_string(row));
}

void check_rows(const Kernels& kernels, const Sample& sample, int64_t rows, bool is_prompt, Numbers& numbers,
                Checks& checks) {
    const Matrix& matrix = sample.matrix;
    const Format format = kernels.format_for(matrix.layout, is_prompt);
    const Packed packed(kernels, format, rows, matrix.columns, numbers);
    const int64_t stride = matrix.rows + 3, panels = matrix.panels(), middle = panels / 3;
    Exact<float> out((rows - 1) * stride + matrix.rows);
    Exact<uint8_t> scratch(kernels.multiply_scratch(matrix.columns));
    const Matmul matmul{&matrix, packed.activations, rows, out.get(), stride, {}};
    kernels.multiply(matmul, middle, panels, scratch.get());
    kernels.multiply(matmul, 0, middle, scratch.get());
    check_matmul(sample, packed, rows, out, stride, checks);
    check_alone(kernels, sample, packed, rows - 1, out.get() + (rows - 1) * stride, checks);
}

void check_matrix_rows(const Kernels& kernels, const Sample& sample, Checks& checks) {
    const Matrix& matrix = sample.matrix;
    Exact<float> out(matrix.columns);
    for (int64_t row = 0; row < matrix.rows; row++) {
        kernels.matrix_row(matrix, row, out.get());
        for (int64_t column = 0; column < matrix.columns; column++) {
            const double wanted = sample.value(row, column) * matrix.factor;
            checks.near(out[column], wanted, 1e-6, named("matrix_row", matrix.layout, row, column));
        }
    }
}

void check_packed_bytes(const ByteGroup* groups, const float* x, int64_t columns, int64_t row, Checks& checks) {
    for (int64_t group = 0; group < round_up(columns, kGroup) / kGroup; group++) {
        const GroupNumbers& numbers = groups[group].numbers[row];
        int64_t sum = 0;
        for (int64_t within = 0; within < kGroup; within++) {
            const int64_t column = group * kGroup + within;
            const int8_t q = groups[group].columns[row][within];
            sum += q;
            checks.expect(q != -128, "pack_row i8 gives -128");
            const double step = numbers.scale, given = column < columns ? x[column] : 0;
            checks.near(step * q, given, step * 0.501 + 1e-30, "pack_row i8 column " + std::to_string(column));
        }
        checks.near(numbers.count, static_cast<double>(sum), 0, "pack_row i8 sum");
        const double wanted = static_cast<double>(numbers.scale) * static_cast<double>(sum);
        checks.near(numbers.sum, wanted, std::abs(wanted) * 1e-6 + 1e-38, "pack_row i8 scaled sum");
    }
}

void check_pack_row(const Kernels& kernels, int64_t columns, float magnitude, Numbers& numbers, Checks& checks) {
    Exact<float> x(columns);
    x.fill(numbers, -magnitude, magnitude);
    for (const Format format : {Format::f32, Format::i8, Format::bf16}) {
        Exact<uint8_t> packed(16 * row_bytes(format, columns));
        const int64_t row = columns % kRowTile;
        kernels.pack_row(x.get(), columns, format, packed.get(), row);
        const Activations activations{format, packed.get(), columns};
        if (format == Format::i8) {
            check_packed_bytes(activations.byte_groups(0), x.get(), columns, row, checks);
            continue;
        }
        const auto found = unpacked(activations, row, round_up(columns, kGroup));
        for (int64_t column = 0; column < round_up(columns, kGroup); column++) {
            const double given = column < columns ? x[column] : 0;
            checks.near(found[column], format == Format::f32 ? given : nearest(given, kBrainMantissa), 0,
                        "pack_row column " + std::to_string(column));
        }
    }
}

// What is not a number must not look like one after a matmul.
void check_poison(const Kernels& kernels, Layout layout, int64_t rows, bool is_prompt, float poison, Checks& checks) {
    Numbers numbers(7);
    const int64_t columns = 70;
    const Sample sample(layout, 20, columns, false, numbers);
    const Format format = kernels.format_for(layout, is_prompt);
    Packed packed(kernels, format, rows, columns, numbers);
    Exact<float> x(columns);
    x.fill(numbers, -1, 1);
    x[66] = poison;
    kernels.pack_row(x.get(), columns, format, packed.data.get(), 0);
    Exact<float> out(rows * 20);
    Exact<uint8_t> scratch(kernels.multiply_scratch(columns));
    kernels.multiply({&sample.matrix, packed.activations, rows, out.get(), 20}, 0, 2, scratch.get());
    for (int64_t i = 0; i < rows * 20; i++) {
        checks.expect(std::isfinite(out[i]) == (i >= 20), named("a poisoned multiply", layout, rows, i));
    }
}

}  // namespace

void test_multiply(const Kernels& kernels, Checks& checks) {
    Numbers numbers(1);
    for (const int64_t columns : {1, 31, 32, 33, 64, 200}) {
        for (const float magnitude : {1.0f, 3e4f, 1e-20f, 1e-37f, 0.0f}) {
            check_pack_row(kernels, columns, magnitude, numbers, checks);
        }
    }
    const int64_t shapes[][2] = {{1, 1}, {16, 32}, {17, 33}, {37, 95}, {80, 160}};
    for (const Layout layout : kLayouts) {
        for (const auto& shape : shapes) {
            const Sample sample(layout, shape[0], shape[1], shape[0] % 2 == 1, numbers);
            check_matrix_rows(kernels, sample, checks);
            for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 24, 31, 33, 64}) {
                for (const bool is_prompt : {false, true}) check_rows(kernels, sample, rows, is_prompt, numbers, checks);
            }
        }
        for (const int64_t rows : {1, 6, 10, 40}) {
            for (const bool is_prompt : {false, true}) {
                check_poison(kernels, layout, rows, is_prompt, NAN, checks);
                check_poison(kernels, layout, rows, is_prompt, INFINITY, checks);
            }
        }
    }
}

}  // namespace quire
