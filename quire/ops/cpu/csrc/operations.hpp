// The operations of a program.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "program.hpp"
#include "shares.hpp"

namespace quire {

// --- on rows ---------------------------------------------------------------------------------------------------------

struct Add final : RowOperation {
    Add(Place a, Place b, Place to, int64_t columns) : a(a), b(b), to(to), columns(columns) {}
    void run(const Run& run, int64_t row) const override;
    const Place a, b, to;
    const int64_t columns;
};

struct Scale final : RowOperation {
    Scale(Place from, Place to, int64_t columns, float factor) : from(from), to(to), columns(columns), factor(factor) {}
    void run(const Run& run, int64_t row) const override;
    const Place from, to;
    const int64_t columns;
    const float factor;
};

// Each row times a number of its own.
struct ScaleRow final : RowOperation {
    ScaleRow(Place from, Place factor, Place to, int64_t columns) : from(from), factor(factor), to(to), columns(columns) {}
    void run(const Run& run, int64_t row) const override;
    const Place from, factor, to;
    const int64_t columns;
};

struct Sigmoid final : RowOperation {
    Sigmoid(Place from, Place to, int64_t columns) : from(from), to(to), columns(columns) {}
    void run(const Run& run, int64_t row) const override;
    const Place from, to;
    const int64_t columns;
};

// What a norm works on: `count` vectors of `columns`, one behind the other, each normed on its own. From the weights of
// one vector to those of the next it is `weight_stride`: 0 where all have the same.
struct NormedVectors {
    int64_t columns, count, weight_stride;
};

struct RmsNorm final : RowOperation {
    RmsNorm(Place from, Place to, const float* weight, NormedVectors vectors, float eps, float offset)
        : from(from), to(to), weight(weight), vectors(vectors), eps(eps), offset(offset) {}
    void run(const Run& run, int64_t row) const override;
    const Place from, to;
    const float* weight;
    const NormedVectors vectors;
    const float eps, offset;
};

// `bias` may be null; otherwise it lies as the weights do.
struct LayerNorm final : RowOperation {
    LayerNorm(Place from, Place to, const float* weight, const float* bias, NormedVectors vectors, float eps)
        : from(from), to(to), weight(weight), bias(bias), vectors(vectors), eps(eps) {}
    void run(const Run& run, int64_t row) const override;
    const Place from, to;
    const float *weight, *bias;
    const NormedVectors vectors;
    const float eps;
};

// activation(gate) * up for [gate | up]; without `gated` just activation(x).
struct Gate final : RowOperation {
    Gate(Place from, Place to, int64_t columns, Activation activation, bool gated)
        : from(from), to(to), columns(columns), activation(activation), gated(gated) {}
    void run(const Run& run, int64_t row) const override;
    const Place from, to;
    const int64_t columns;
    const Activation activation;
    const bool gated;
};

struct Rotate final : RowOperation {
    Rotate(Place heads, int64_t num_heads, int64_t head_dim, int cos, int sin, int64_t half)
        : heads(heads), num_heads(num_heads), head_dim(head_dim), cos(cos), sin(sin), half(half) {}
    void run(const Run& run, int64_t row) const override;
    const Place heads;
    const int64_t num_heads, head_dim;
    const int cos, sin;
    const int64_t half;
};

struct WriteKV final : RowOperation {
    WriteKV(Place key, Place value, PagedCache cache, int slots) : key(key), value(value), cache(cache), slots(slots) {}
    void run(const Run& run, int64_t row) const override;
    const Place key, value;
    const PagedCache cache;
    const int slots;

private:
    void write_bytes(const Run& run, const float* heads, uint8_t* plane, int64_t slot) const;
};

struct WriteLatent final : RowOperation {
    WriteLatent(Place latent, PagedCache cache, int slots) : latent(latent), cache(cache), slots(slots) {}
    void run(const Run& run, int64_t row) const override;
    const Place latent;
    const PagedCache cache;
    const int slots;
};

// Where the heads of a row lie: so many columns from one to the next.
struct HeadPlaces {
    Place place;
    int64_t stride;
};

// The same columns of every head.
struct CopyHeads final : RowOperation {
    CopyHeads(HeadPlaces from, HeadPlaces to, int64_t num_heads, int64_t columns)
        : from(from), to(to), num_heads(num_heads), columns(columns) {}
    void run(const Run& run, int64_t row) const override;
    const HeadPlaces from, to;
    const int64_t num_heads, columns;
};

// To the format in which rows multiply a matrix of this layout fastest.
struct Pack final : RowOperation {
    Pack(Place from, Place to, int64_t columns, Layout layout) : from(from), to(to), columns(columns), layout(layout) {}
    void run(const Run& run, int64_t row) const override;
    const Place from, to;
    const int64_t columns;
    const Layout layout;
};

// --- together --------------------------------------------------------------------------------------------------------

// x Wᵀ + b for packed x.
class Linear final : public Step {
public:
    Linear(std::shared_ptr<const Matrix> matrix, Place from, Place to) : matrix_(std::move(matrix)), from_(from), to_(to) {}
    void prepare(const Run& run) override;
    void run(const Run& run, int thread) override;
    const uint8_t* weights_of(int thread) const override { return matrix_->panel(shares_.first_of(thread)); }

private:
    const std::shared_ptr<const Matrix> matrix_;
    const Place from_, to_;
    Shares shares_;  // of the matrix's panels
};

// Every head of x times a matrix of its own. These lie one below the other, each in panels of its own, and have `size`
// rows. Heads are packed as they are multiplied: all of them would be several times a row's other values.
class MultiplyHeads final : public Step {
public:
    MultiplyHeads(const Matrix& stack, int64_t num_heads, int64_t size, HeadPlaces from, HeadPlaces to);
    void prepare(const Run& run) override;
    void run(const Run& run, int thread) override;
    const uint8_t* weights_of(int thread) const override { return stack_.panel(shares_.first_of(thread)); }

private:
    int64_t packed_bytes() const;
    // With panels [first, last) of one head's matrix.
    void multiply(const Run& run, int64_t head, int64_t first, int64_t last, const Reading& reading,
                  uint8_t* scratch) const;

    const Matrix stack_;
    const int64_t size_;
    const HeadPlaces from_, to_;
    Shares shares_;  // of the stack's panels
};

// What one matrix has of all LoRA adapters, in pages of 16 ranks.
struct LoraPages {
    const uint8_t* down;  // each page_bytes apart: [parts][columns][16]
    const uint8_t* up;    // likewise: [16 + 1][outputs]
    int64_t page_bytes;
    bool is_brain;
    const int32_t* pages;  // [slots][most_pages]
    int64_t most_pages;
    const int32_t* counts;  // [slots]: pages that hold something of this matrix
    const int32_t* is_dora;
    std::vector<int64_t> parts;  // outputs of each
    int64_t columns;
};

// y += B A x for rows that have an adapter: input `adapters` has its slot, or -1. Rows of one adapter are computed
// together, by one thread as far as there are others for the rest: its numbers come from memory once.
class AddLora final : public Step {
public:
    AddLora(Place x, Place y, int adapters, LoraPages lora, const float* bias);
    void prepare(const Run& run) override;
    void run(const Run& run, int thread) override;
    bool is_idle() const override { return pieces_.empty(); }

private:
    struct Piece {
        int32_t slot;
        int64_t first, last;  // of the ordered rows
    };
    void add(const Run& run, const Piece& piece) const;

    const Place x_, y_;
    const int adapters_;
    const LoraPages lora_;
    const float* const bias_;  // null: none
    int64_t outputs_ = 0;
    std::vector<int64_t> rows_;  // by slot
    std::vector<Piece> pieces_;
    Shares shares_;
};

}  // namespace quire
