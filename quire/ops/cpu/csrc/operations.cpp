#include "operations.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

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

void WriteLatent::run(const Run& run, int64_t row) const {
    const int64_t slot = run.input<int64_t>(slots)[row];
    run.kernels.store_kv(run.floats(latent, row), cache.head_dim, cache.type, cache.keys + slot * cache.vector_bytes());
}

void CopyHeads::run(const Run& run, int64_t row) const {
    const float* x = run.floats(from.place, row);
    float* out = run.floats(to.place, row);
    for (int64_t head = 0; head < num_heads; head++, x += from.stride, out += to.stride) std::copy(x, x + columns, out);
}

void Pack::run(const Run& run, int64_t row) const {
    const RowPart& part = run.parts.of(row);
    const Format format = run.kernels.format_for(layout, part.is_prompt);
    // rows of a part lie one behind the other, however far apart the widest format would have them
    run.kernels.pack_row(run.floats(from, row), columns, format, run.at(to, part.packed_first), row - part.first);
}

namespace {

// Several pieces a thread: one that is held up leaves some to the others. Small ones for few rows, where all wait for the
// last piece hundreds of times a step; larger ones for many, as what is made of a panel serves all rows.
void divide_panels(const Run& run, const Matrix& matrix, Shares& shares) {
    const int64_t pieces = run.pool.size() * (run.rows < 16 ? 16 : 4);
    int64_t piece = std::max<int64_t>(1, matrix.panels() / pieces);
    if (piece > 1) piece = round_up(piece, 2);  // tiles take two panels
    shares.divide(matrix.panels(), piece, run.pool.size());
}

// Rows of one head that are packed at once: they stay in the second cache.
constexpr int64_t kHeadRows = 128;

}  // namespace

void Linear::prepare(const Run& run) { divide_panels(run, *matrix_, shares_); }

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

MultiplyHeads::MultiplyHeads(const Matrix& stack, int64_t num_heads, int64_t size, HeadPlaces from, HeadPlaces to)
    : stack_(stack), size_(size), from_(from), to_(to) {
    if (stack.rows != num_heads * round_up(size, kPanel)) {
        throw std::invalid_argument("a stack of " + std::to_string(stack.rows) + " rows for " +
                                    std::to_string(num_heads) + " heads of " + std::to_string(size));
    }
}

int64_t MultiplyHeads::packed_bytes() const {
    return kHeadRows * std::max(row_bytes(Format::f32, stack_.columns), most_row_bytes(stack_.columns));
}

void MultiplyHeads::prepare(const Run& run) { divide_panels(run, stack_, shares_); }

void MultiplyHeads::run(const Run& run, int thread) {
    const uint8_t* const next = weights_after(thread);
    uint8_t* scratch = run.pool.scratch(thread, packed_bytes() + run.kernels.multiply_scratch(stack_.columns));
    const int64_t panels = round_up(size_, kPanel) / kPanel;  // of a head
    for (Shares::Piece piece = shares_.take(thread); !piece.is_empty(); piece = shares_.take(thread)) {
        const Reading reading{stack_.panel(piece.owner == thread ? shares_.last_of(thread) : piece.last), next};
        for (int64_t at = piece.first, last; at < piece.last; at = last) {
            const int64_t head = at / panels;
            last = std::min(piece.last, (head + 1) * panels);
            multiply(run, head, at - head * panels, last - head * panels, reading, scratch);
        }
    }
}

void MultiplyHeads::multiply(const Run& run, int64_t head, int64_t first, int64_t last, const Reading& reading,
                             uint8_t* scratch) const {
    Matrix matrix = stack_;
    matrix.data = stack_.panel(head * (round_up(size_, kPanel) / kPanel));
    matrix.rows = size_;
    uint8_t* const rest = scratch + packed_bytes();
    for (const RowPart& part : run.parts) {
        const Activations x{run.kernels.format_for(matrix.layout, part.is_prompt), scratch, matrix.columns};
        for (int64_t row = part.first; row < part.last; row += kHeadRows) {
            const int64_t count = std::min(kHeadRows, part.last - row);
            for (int64_t i = 0; i < count; i++) {
                const float* const own = run.floats(from_.place, row + i) + head * from_.stride;
                run.kernels.pack_row(own, matrix.columns, x.format, scratch, i);
            }
            float* const out = run.floats(to_.place, row) + head * to_.stride;
            run.kernels.multiply({&matrix, x, count, out, run.stride(to_.place) / 4, reading}, first, last, rest);
        }
    }
}

namespace {

// Rows of an adapter that a thread takes at once.
constexpr int64_t kMostLoraRows = 8;

}  // namespace

AddLora::AddLora(Place x, Place y, int adapters, LoraPages lora, const float* bias)
    : x_(x), y_(y), adapters_(adapters), lora_(std::move(lora)), bias_(bias) {
    for (const int64_t size : lora_.parts) outputs_ += size;
}

void AddLora::prepare(const Run& run) {
    pieces_.clear();
    rows_.clear();
    const auto slot_of = [&](int64_t row) { return *run.input<int32_t>(adapters_, row); };
    for (int64_t row = 0; row < run.rows; row++) {
        const int32_t slot = slot_of(row);
        if (slot >= 0 && lora_.counts[slot] > 0) rows_.push_back(row);
    }
    if (rows_.empty()) return;
    std::stable_sort(rows_.begin(), rows_.end(), [&](int64_t a, int64_t b) { return slot_of(a) < slot_of(b); });
    const auto count = static_cast<int64_t>(rows_.size());
    for (int64_t first = 0, last; first < count; first = last) {
        const int32_t slot = slot_of(rows_[first]);
        for (last = first; last < count && last - first < kMostLoraRows && slot_of(rows_[last]) == slot;) last++;
        pieces_.push_back({slot, first, last});
    }
    shares_.divide(static_cast<int64_t>(pieces_.size()), 1, run.pool.size());
}

void AddLora::run(const Run& run, int thread) {
    for (Shares::Piece share = shares_.take(thread); !share.is_empty(); share = shares_.take(thread)) {
        for (int64_t i = share.first; i < share.last; i++) add(run, pieces_[i]);
    }
}

void AddLora::add(const Run& run, const Piece& piece) const {
    const float* x[kMostLoraRows];
    float* y[kMostLoraRows];
    const int64_t count = piece.last - piece.first;
    for (int64_t i = 0; i < count; i++) {
        x[i] = run.floats(x_, rows_[piece.first + i]);
        y[i] = run.floats(y_, rows_[piece.first + i]);
    }
    const bool is_dora = lora_.is_dora[piece.slot] != 0;
    for (int64_t i = 0; is_dora && bias_ != nullptr && i < count; i++) {
        for (int64_t output = 0; output < outputs_; output++) y[i][output] -= bias_[output];
    }
    const int32_t* const pages = lora_.pages + piece.slot * lora_.most_pages;
    const auto page = [&](int32_t number) {
        const int64_t at = number * lora_.page_bytes;
        return LoraRows{x, y, count, lora_.down + at, lora_.up + at, lora_.is_brain, lora_.columns, outputs_,
                        lora_.parts.data(), static_cast<int64_t>(lora_.parts.size())};
    };
    for (int32_t number = 0; number < lora_.counts[piece.slot]; number++) run.kernels.add_lora(page(pages[number]));
    if (is_dora) run.kernels.scale_lora(page(pages[0]), bias_);
}

}  // namespace quire
