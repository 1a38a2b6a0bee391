// From tensors as checkpoints store them to the layouts of kernels, a row at a time.
#pragma once

#include <cstdint>

#include "layouts.hpp"

namespace quire {

// What a row is packed from. The first four and the last are ggml's blocks, which 4 or 8 bits hold exactly; all other
// packed types come as floats.
enum class Source : int { q4_0 = 0, q4_1 = 1, q4_k = 2, q8_0 = 3, f32 = 4, f16 = 5, bf16 = 6, mxfp4 = 7 };

// Float16 holds scales of rows that came as floats after they were multiplied by this, a power of two.
constexpr float kFloatScale = 64.0f;

// Bytes of one row of `columns` columns.
int64_t source_row_bytes(Source source, int64_t columns);

// Write row `row` of a matrix of `columns` columns whose panels begin at `data`, which was zero. From floats to q8 the
// values are kFloatScale times as large as they should be: the matrix's factor makes up for it.
void pack_matrix_row(Source source, const uint8_t* from, int64_t columns, Layout layout, int64_t row, uint8_t* data);

}  // namespace quire
