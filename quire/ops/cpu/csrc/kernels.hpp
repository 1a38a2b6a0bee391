// The table of kernels that every instruction set fills in its own way (variants/), and what they take.
#pragma once

#include <cstdint>

#include "layouts.hpp"

namespace quire {

// The last is gpt-oss's: it changes both gate and up, so there is none without an up.
enum class Activation : int { silu = 0, gelu = 1, gelu_tanh = 2, relu = 3, clamped_swiglu = 4 };

// Weights in the order in which one thread reads them: on to `end`, then from `next` (if not null).
struct Reading {
    const uint8_t* end;
    const uint8_t* next;

    // What is read once so many bytes behind `at` have been read.
    const uint8_t* ahead(const void* at, int64_t bytes) const {
        const int64_t left = end - static_cast<const uint8_t*>(at);
        if (bytes < left) return static_cast<const uint8_t*>(at) + bytes;
        return next == nullptr ? end : next + (bytes - left);
    }
};

// What of a matmul one thread computes: all rows of activations times panels [first, last) of a matrix.
struct Matmul {
    const Matrix* matrix;
    Activations x;
    int64_t rows;  // of x, which must have room for these rounded up to 16
    float* out;    // [rows][stride]
    int64_t stride;
    Reading reading;
};

// Ranks of a page of LoRA adapters.
constexpr int64_t kPageRank = 16;

// Rows with the same adapter, and one page of what that has of a matrix.
struct LoraRows {
    const float* const* x;
    float* const* y;
    int64_t rows;
    const void* down;  // [parts][columns][kPageRank]
    const void* up;    // [kPageRank][outputs], then DoRA's factors [outputs]
    bool is_brain;     // bfloat16, otherwise float32
    int64_t columns, outputs;
    const int64_t* parts;  // outputs of each
    int64_t num_parts;
};

// Where a paged cache lies. Keys and values are [blocks][block_size][kv_heads][head_dim]; those of i8 have the scales of
// a block behind its numbers, as floats [kv_heads][block_size], which may lie at any byte. A cache of latents has one
// vector a position, whose beginning is its value too.
struct PagedCache {
    KVType type;
    uint8_t* keys;
    uint8_t* values;  // of latents: the keys
    int64_t block_size;
    int64_t kv_heads;
    int64_t head_dim;

    bool is_of_latents() const { return keys == values; }

    int64_t vector_bytes() const { return head_dim * kv_bytes(type); }
    int64_t block_bytes() const {
        const int64_t scale = type == KVType::i8 ? sizeof(float) : 0;
        return block_size * kv_heads * (vector_bytes() + scale);
    }
    // Of a KV head's vector in a slot of a block: where it lies in keys or values, and where its scale does.
    int64_t vector_at(int64_t block, int64_t within, int64_t head) const {
        return block * block_bytes() + (within * kv_heads + head) * vector_bytes();
    }
    int64_t scale_at(int64_t block, int64_t within, int64_t head) const {
        return vector_at(block, block_size, 0) + (head * block_size + within) * static_cast<int64_t>(sizeof(float));
    }
};

// How far back a token looks: over a window of positions or, instead, to where its own chunk of positions begins.
struct Sight {
    int64_t window;  // itself included; 0: none
    int64_t chunk;   // they begin at multiples of this; 0: none

    // The first position that a token at `own` sees.
    int64_t first(int64_t own) const {
        if (chunk > 0) return own / chunk * chunk;
        return window > 0 && own >= window ? own - window + 1 : 0;
    }
    bool operator==(const Sight& other) const { return window == other.window && chunk == other.chunk; }
};

// Queries of one sequence that share a KV head, over a range of its positions.
struct AttentionTask {
    const PagedCache* cache;
    const int32_t* table;  // the sequence's blocks
    int64_t kv_head;
    int64_t group;          // query heads that share it
    const float* queries;   // of the first query; heads of a query are head_dim apart
    int64_t query_stride;   // floats from one query to the next
    int64_t value_dim;      // of the cache's head_dim, as many numbers as a value has
    int64_t num_queries;
    int64_t first_position;  // where the first query stands
    int64_t begin, end;      // positions of keys
    Sight sight;
    float scale;
    float softcap;  // 0: none
    bool is_prompt;
    const AttentionTask* next;  // what the thread attends to next, with all KV heads: it comes meanwhile; may be null
};

// Softmax over a part of the positions: sum of exp(score - peak) * value, not divided by the sum of exp(score - peak).
// Row q * group + h belongs to head h of query q.
struct AttentionPart {
    float* mixed;  // [rows][value_dim]
    float* peak;   // [rows]
    float* total;  // [rows]
};

// How a row draws its token. Noise is a function of seed, stream, position and the token's id.
struct Draw {
    float temperature;  // 0: the most likely
    int64_t top_k;      // 0 or less: all
    float top_p;        // 1: all
    float min_p;        // 0: all
    uint64_t seed;
    uint32_t stream, position;
};

// A vocabulary is looked through in stretches of so many tokens.
constexpr int64_t kStretch = 64;

// Floats of scratch for drawing one of `count` tokens.
inline int64_t draw_scratch(int64_t count) { return (count + kStretch - 1) / kStretch * (2 * kStretch + 1); }

struct Kernels {
    const char* name;

    // In which format rows of a prompt, or others, meet a matrix. In one format nothing that `multiply` computes for a row
    // depends on the others, so the same tokens give the same result alone and in any batch.
    Format (*format_for)(Layout, bool is_prompt);
    // Row `index` of what begins at `packed`.
    void (*pack_row)(const float* x, int64_t columns, Format, uint8_t* packed, int64_t index);
    void (*multiply)(const Matmul&, int64_t first_panel, int64_t last_panel, uint8_t* scratch);
    // Bytes of scratch that `multiply` takes for a matrix of so many columns.
    int64_t (*multiply_scratch)(int64_t columns);
    // The values of one row of a matrix.
    void (*matrix_row)(const Matrix&, int64_t row, float* out);

    // out = x / rms(x) * (weight + offset); out may be x.
    void (*rms_norm)(const float* x, const float* weight, int64_t columns, float eps, float offset, float* out);
    // out = (x - mean) / deviation * weight + bias; a null `bias` is 0; out may be x.
    void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t columns, float eps, float* out);
    // out = activation(gate) * up, or what clamped_swiglu makes of both; a null `up` is 1.
    void (*gate)(const float* gate, const float* up, int64_t columns, Activation, float* out);
    void (*rotate)(float* heads, int64_t num_heads, int64_t head_dim, const float* cos, const float* sin, int64_t half);
    // y += B A x, for one page of an adapter.
    void (*add_lora)(const LoraRows&);
    // What DoRA does behind the last page: y times its factors, plus the bias, which may be null.
    void (*scale_lora)(const LoraRows&, const float* bias);
    void (*store_kv)(const float* values, int64_t count, KVType, uint8_t* out);
    // One vector as i8; returns its scale, which is NaN where a number is NaN or infinite.
    float (*store_kv_bytes)(const float* values, int64_t count, int8_t* out);

    void (*attend)(const AttentionTask&, const AttentionPart&, uint8_t* scratch);
    int64_t (*attend_scratch)(int64_t rows, int64_t head_dim);

    // The first of the largest values; its own value is NaN or infinite where any is.
    int64_t (*argmax)(const float* x, int64_t count, float* peak);
    // A token of `count`; scratch is `draw_scratch` floats. Of logits with NaN, any.
    int64_t (*sample)(const float* logits, int64_t count, const Draw&, float* scratch);
    // What token_logprobs packs of one row; scratch is `draw_scratch` floats, and `count` ids.
    void (*token_logprobs)(const float* logits, int64_t count, int64_t token, int64_t most, float* scratch, int32_t* ids,
                           int32_t* packed);
};

}  // namespace quire
