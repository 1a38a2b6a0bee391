// Cosine and sine of position angles, as rotation takes them.
#pragma once

#include <cstdint>

namespace quire {

// cos and sin of positions[token] * frequencies[token * stride + i], times factor: [num_tokens][half]. The angle itself
// is rounded to float32, as in the checkpoints' own code; the results are within 2e-7 of that angle's, up to 2^20.
void rope_angles(const int64_t* positions, int64_t num_tokens, const float* frequencies, int64_t stride, int64_t half,
                 float factor, float* cos, float* sin);

}  // namespace quire
