// Penalties of tokens that a sequence has already, as quire/ops/reference/adjust_logits.py defines them.
#pragma once

#include <cstdint>

namespace quire {

struct Penalties {
    float repetition, presence, frequency;
};

// Changes the logits of `length` tokens, of which the first `prompt` are the prompt's. `counts` has a zero for every
// logit, before and after.
void penalize(float* logits, int64_t vocabulary, const int32_t* tokens, int64_t prompt, int64_t length,
              const Penalties& penalties, int32_t* counts);

}  // namespace quire
