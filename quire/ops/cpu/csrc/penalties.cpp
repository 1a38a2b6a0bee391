#include "penalties.hpp"

namespace quire {

namespace {

constexpr int32_t kPromptFlag = 1, kOutputUnit = 2;

// In the reference's order, each step rounded by itself: a product of floats is exact in double, so that no compiler can
// fuse it with the subtraction after it.
float penalized(float logit, int32_t count, const Penalties& penalties) {
    const float repeated = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
    const int32_t outputs = count / kOutputUnit;
    const auto often = static_cast<float>(static_cast<double>(penalties.frequency) * outputs);
    return repeated - often - (outputs > 0 ? penalties.presence : 0.0f);
}

}  // namespace

void penalize(float* logits, int64_t vocabulary, const int32_t* tokens, int64_t prompt, int64_t length,
              const Penalties& penalties, int32_t* counts) {
    for (int64_t place = 0; place < length; place++) {
        const int32_t token = tokens[place];
        if (token < 0 || token >= vocabulary) continue;  // a placeholder has no logit
        if (place < prompt) {
            counts[token] |= kPromptFlag;
        } else {
            counts[token] += kOutputUnit;
        }
    }
    for (int64_t place = 0; place < length; place++) {
        const int32_t token = tokens[place];
        if (token < 0 || token >= vocabulary || counts[token] == 0) continue;
        logits[token] = penalized(logits[token], counts[token], penalties);
        counts[token] = 0;
    }
}

}  // namespace quire
