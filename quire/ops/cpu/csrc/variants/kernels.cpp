// The kernels of one instruction set. This file is compiled once for each, with that set's flags and its name in
// QUIRE_ISA; everything it includes lives in anonymous namespaces, so the copies do not meet.
#include "../kernels.hpp"

#include "attend.hpp"
#include "logprobs.hpp"
#include "lora.hpp"
#include "multiply.hpp"
#include "multiply_byte_tiles.hpp"
#include "multiply_tiles.hpp"
#include "pack_rows.hpp"
#include "rows.hpp"
#include "sample.hpp"
#include "wide.hpp"

#define QUIRE_TEXT(name) #name
#define QUIRE_NAME(name) QUIRE_TEXT(name)
#define QUIRE_JOIN(a, b) a##b
#define QUIRE_TABLE(name) QUIRE_JOIN(kernels_, name)

namespace quire {
namespace {

bool is_in_bytes(Layout layout) { return layout == Layout::q4 || layout == Layout::q8 || layout == Layout::mxfp4; }

// On AMX a prompt's many rows are fastest in bfloat16, which takes more time for each of the weights and less for each row;
// answers, mostly few rows at a time, in bytes. It goes by what a token is, not by how many there happen to be, since
// the two round differently.
Format format_for(Layout layout, bool is_prompt) {
#if defined(__AMX_BF16__)
    if (layout != Layout::f32 && (is_prompt || !is_in_bytes(layout))) return Format::bf16;
#endif
    (void)is_prompt;
    return is_in_bytes(layout) ? Format::i8 : Format::f32;
}

int64_t multiply_scratch(int64_t columns) {
#if defined(__AMX_BF16__)
    return std::max(2 * expanded_bytes(columns), bytes_scratch(columns));
#elif defined(__ARM_FEATURE_DOTPROD)
    return wide_panel_bytes(columns);
#else
    (void)columns;
    return 0;
#endif
}

void multiply(const Matmul& matmul, int64_t first_panel, int64_t last_panel, uint8_t* scratch) {
#if defined(__AMX_BF16__)
    if (matmul.x.format == Format::bf16) {
        multiply_in_tiles(matmul, first_panel, last_panel, scratch);
        return;
    }
    if (matmul.x.format == Format::i8 && matmul.rows >= kFewestRowsInTiles) {
        switch (matmul.matrix->layout) {
            case Layout::q4: return multiply_bytes_in_tiles<Q4Group>(matmul, first_panel, last_panel, scratch);
            case Layout::mxfp4: return multiply_bytes_in_tiles<Mxfp4Group>(matmul, first_panel, last_panel, scratch);
            default: return multiply_bytes_in_tiles<Q8Group>(matmul, first_panel, last_panel, scratch);
        }
    }
#elif defined(__ARM_FEATURE_DOTPROD)
    if (multiply_wide(matmul, first_panel, last_panel, scratch)) return;
#endif
    (void)scratch;
    multiply_panels(matmul, first_panel, last_panel);
}

}  // namespace

extern const Kernels& QUIRE_TABLE(QUIRE_ISA)();

const Kernels& QUIRE_TABLE(QUIRE_ISA)() {
    static const Kernels table = {
        QUIRE_NAME(QUIRE_ISA), format_for, pack_row, multiply,  multiply_scratch, matrix_row,     rms_norm, layer_norm,
        gate,                  rotate,     add_lora, scale_lora, store_kv, store_kv_bytes, attend,      attend_scratch, argmax,   sample,
        token_logprobs,
    };
    return table;
}

}  // namespace quire
