// From the rows of a step to the integers that its forward reads: where every token comes from and where its KV goes.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// What is known about each running sequence, at its row.
struct RowStates {
    int64_t num_rows;
    const int32_t* tokens;  // [num_rows][row_tokens]
    int64_t row_tokens;
    const int64_t* num_computed;
    const int64_t* lengths_for_angles;
    std::vector<const int32_t*> tables;  // by KV group: [num_rows][row_blocks]
    int64_t row_blocks;
    int64_t block_size;
};

// Which rows a step computes, and how many tokens of each.
struct StepRows {
    const int64_t* rows;
    const int64_t* counts;
    int64_t num_sequences;
    int64_t num_tokens;
};

struct StepTensors {
    int64_t* per_token;  // [3 + groups][num_tokens]: token ids, positions, lengths for angles, slots of every group
    int64_t* starts;     // [num_sequences + 1]
    int64_t* lengths;    // [num_sequences]
    int32_t* tables;     // [groups][num_sequences][max_blocks]
    int64_t max_blocks;  // at most row_blocks
};

// Throws out_of_range, with the numbers, for a row that there is not or tokens that it has no room for.
void fill_step_inputs(const RowStates& states, const StepRows& step, const StepTensors& out);

}  // namespace quire
