#include "operations.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quire {

void Add::run(const Run& run, int64_t row) const {
    const float *first = run.floats(a, row), *second = run.floats(b, row);
    float* out = run.floats(to, row);
    for (int64_t i = 0; i < columns; i++) out[i] = first[i] + second[i];
}

void Scale::run(const Run& run, int64_t row) const {
    const float* x = run.floats(from, row);
    float* out = run.floats(to, row);
    for (int64_t i = 0; i < columns; i++) out[i] = x[i] * factor;
}

void ScaleRow::run(const Run& run, int64_t row) const {
    const float* x = run.floats(from, row);
    const float by = *run.floats(factor, row);
    float* out = run.floats(to, row);
    for (int64_t i = 0; i < columns; i++) out[i] = x[i] * by;
}

void Sigmoid::run(const Run& run, int64_t row) const {
    const float* x = run.floats(from, row);
    float* out = run.floats(to, row);
    for (int64_t i = 0; i < columns; i++) out[i] = 1.0f / (1.0f + std::exp(-x[i]));
}

void RmsNorm::run(const Run& run, int64_t row) const {
    const float* x = run.floats(from, row);
    float* out = run.floats(to, row);
    for (int64_t i = 0; i < vectors.count; i++, x += vectors.columns, out += vectors.columns) {
        run.kernels.rms_norm(x, weight + i * vectors.weight_stride, vectors.columns, eps, offset, out);
    }
}

void LayerNorm::run(const Run& run, int64_t row) const {
    const float* x = run.floats(from, row);
    float* out = run.floats(to, row);
    for (int64_t i = 0; i < vectors.count; i++, x += vectors.columns, out += vectors.columns) {
        const int64_t at = i * vectors.weight_stride;
        run.kernels.layer_norm(x, weight + at, bias == nullptr ? nullptr : bias + at, vectors.columns, eps, out);
    }
}

void Gate::run(const Run& run, int64_t row) const {
    const float* gate = run.floats(from, row);
    run.kernels.gate(gate, gated ? gate + columns : nullptr, columns, activation, run.floats(to, row));
}

void Rotate::run(const Run& run, int64_t row) const {
    run.kernels.rotate(run.floats(heads, row), num_heads, head_dim, run.input<float>(cos, row),
                       run.input<float>(sin, row), half);
}

void WriteKV::run(const Run& run, int64_t row) const {
    const int64_t slot = run.input<int64_t>(slots)[row], count = cache.kv_heads * cache.head_dim;
    if (cache.type == KVType::i8) {
        write_bytes(run, run.floats(key, row), cache.keys, slot);
        write_bytes(run, run.floats(value, row), cache.values, slot);
        return;
    }
    const int64_t at = slot * cache.kv_heads * cache.vector_bytes();
    run.kernels.store_kv(run.floats(key, row), count, cache.type, cache.keys + at);
    run.kernels.store_kv(run.floats(value, row), count, cache.type, cache.values + at);
}

void WriteKV::write_bytes(const Run& run, const float* heads, uint8_t* plane, int64_t slot) const {
    const int64_t block = slot / cache.block_size, within = slot % cache.block_size;
    for (int64_t head = 0; head < cache.kv_heads; head++, heads += cache.head_dim) {
        auto* const to = reinterpret_cast<int8_t*>(plane + cache.vector_at(block, within, head));
        const float scale = run.kernels.store_kv_bytes(heads, cache.head_dim, to);
        std::memcpy(plane + cache.scale_at(block, within, head), &scale, sizeof(scale));
    }
}

void Pack::run(const Run& run, int64_t row) const {
    const RowPart& part = run.parts.of(row);
    const Format format = run.kernels.format_for(layout, part.is_prompt);
    // rows of a part lie one behind the other, however far apart the widest format would have them
    run.kernels.pack_row(run.floats(from, row), columns, format, run.at(to, part.packed_first), row - part.first);
}

void Linear::prepare(const Run& run) {
    // Several pieces a thread: one that is held up leaves some to the others. Small ones for few rows, where all wait
    // for the last piece hundreds of times a step; larger ones for many, as what is made of a panel serves all rows.
    const int64_t pieces = run.pool.size() * (run.rows < 16 ? 16 : 4);
    int64_t piece = std::max<int64_t>(1, matrix_->panels() / pieces);
    if (piece > 1) piece = round_up(piece, 2);  // tiles take two panels
    shares_.divide(matrix_->panels(), piece, run.pool.size());
}

void Linear::run(const Run& run, int thread) {
    const Matrix& matrix = *matrix_;
    const uint8_t* const next = weights_after(thread);
    uint8_t* scratch = run.pool.scratch(thread, run.kernels.multiply_scratch(matrix.columns));
    for (Shares::Piece piece = shares_.take(thread); !piece.is_empty(); piece = shares_.take(thread)) {
        // a piece of another thread's share is taken near its end: there is nothing behind it to read
        const Reading reading{matrix.panel(piece.owner == thread ? shares_.last_of(thread) : piece.last), next};
        for (const RowPart& part : run.parts) {
            const Format format = run.kernels.format_for(matrix.layout, part.is_prompt);
            const Activations x{format, run.at(from_, part.packed_first), matrix.columns};
            const Matmul matmul{&matrix, x, part.count(), run.floats(to_, part.first), run.stride(to_) / 4, reading};
            run.kernels.multiply(matmul, piece.first, piece.last, scratch);
        }
    }
}

}  // namespace quire
