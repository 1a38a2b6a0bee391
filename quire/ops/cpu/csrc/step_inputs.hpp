// The integers around a step: from its rows to what its forward reads, and from what it sampled back to the rows.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// What is known about each running sequence, at its row.
struct RowStates {
    int64_t num_rows;
    int32_t* tokens;  // [num_rows][row_tokens]
    int64_t row_tokens;
    int64_t* num_computed;
    const int64_t* lengths_for_angles;
    std::vector<const int32_t*> tables;  // by KV group: [num_rows][row_blocks]
    int64_t row_blocks;
};

struct StepTensors {
    int64_t num_tokens;
    // One behind the other: token ids, positions, lengths for angles, slots of every group [num_tokens each], rows,
    // lengths [num_sequences each], starts [num_sequences + 1].
    int64_t* numbers;
    int32_t* tables;     // [groups][num_sequences][max_blocks]
    int64_t max_blocks;  // at most row_blocks
};

// Both throw out_of_range, with the numbers, for a row that there is not or tokens that it has no room for.

// `counts` more tokens of `rows` are to be computed.
void fill_step_inputs(const RowStates& states, const std::vector<int64_t>& rows, const std::vector<int64_t>& counts,
                      int64_t block_size, const StepTensors& out);

// `rows` are computed up to `lengths`, and behind these stand the tokens that the first of them sampled.
void finish_step(const RowStates& states, const int64_t* rows, const int64_t* lengths, int64_t num_sequences,
                 const int64_t* tokens, int64_t num_sampled);

}  // namespace quire
