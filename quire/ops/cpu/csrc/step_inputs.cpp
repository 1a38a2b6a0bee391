#include "step_inputs.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace quire {

namespace {

void check(const RowStates& states, const StepRows& step) {
    int64_t total = 0;
    for (int64_t i = 0; i < step.num_sequences; i++) {
        const int64_t row = step.rows[i], count = step.counts[i];
        if (row < 0 || row >= states.num_rows) {
            throw std::out_of_range("row " + std::to_string(row) + " of " + std::to_string(states.num_rows));
        }
        const int64_t begin = states.num_computed[row], end = begin + count;
        const int64_t room = std::min(states.row_tokens, states.row_blocks * states.block_size);
        if (count < 0 || begin < 0 || end > room) {
            throw std::out_of_range("tokens " + std::to_string(begin) + " to " + std::to_string(end) + " of row " +
                                    std::to_string(row) + ", which has room for " + std::to_string(room));
        }
        total += count;
    }
    if (total != step.num_tokens) {
        throw std::out_of_range("counts that add up to " + std::to_string(total) + " for a step of " +
                                std::to_string(step.num_tokens) + " tokens");
    }
}

// Slots of `count` tokens from position `begin` on.
void fill_slots(const int32_t* table, int64_t block_size, int64_t begin, int64_t count, int64_t* slots) {
    int64_t block = begin / block_size, within = begin % block_size;
    for (int64_t i = 0; i < count; i++) {
        slots[i] = table[block] * block_size + within;
        if (++within == block_size) {
            within = 0;
            block++;
        }
    }
}

}  // namespace

void fill_step_inputs(const RowStates& states, const StepRows& step, const StepTensors& out) {
    check(states, step);
    int64_t* const ids = out.per_token;
    int64_t* const positions = ids + step.num_tokens;
    int64_t* const angle_lengths = positions + step.num_tokens;
    int64_t* const slots = angle_lengths + step.num_tokens;
    int64_t start = 0;
    for (int64_t i = 0; i < step.num_sequences; i++) {
        const int64_t row = step.rows[i], count = step.counts[i], begin = states.num_computed[row];
        const int32_t* const tokens = states.tokens + row * states.row_tokens + begin;
        std::copy(tokens, tokens + count, ids + start);
        for (int64_t token = 0; token < count; token++) positions[start + token] = begin + token;
        std::fill_n(angle_lengths + start, count, states.lengths_for_angles[row]);
        for (size_t group = 0; group < states.tables.size(); group++) {
            const int32_t* const table = states.tables[group] + row * states.row_blocks;
            fill_slots(table, states.block_size, begin, count, slots + group * step.num_tokens + start);
            std::copy(table, table + out.max_blocks, out.tables + (group * step.num_sequences + i) * out.max_blocks);
        }
        out.starts[i] = start;
        out.lengths[i] = begin + count;
        start += count;
    }
    out.starts[step.num_sequences] = start;
}

}  // namespace quire
