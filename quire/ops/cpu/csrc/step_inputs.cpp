#include "step_inputs.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace quire {

namespace {

// Tokens [begin, end) of a row, which has room for so many.
void check(int64_t row, int64_t begin, int64_t end, int64_t room) {
    if (begin < 0 || end < begin || end > room) {
        throw std::out_of_range("tokens " + std::to_string(begin) + " to " + std::to_string(end) + " of row " +
                                std::to_string(row) + ", which has room for " + std::to_string(room));
    }
}

void check_row(const RowStates& states, int64_t row) {
    if (row < 0 || row >= states.num_rows) {
        throw std::out_of_range("row " + std::to_string(row) + " of " + std::to_string(states.num_rows));
    }
}

void check_step(const RowStates& states, const std::vector<int64_t>& rows, const std::vector<int64_t>& counts,
                int64_t block_size, int64_t num_tokens) {
    int64_t total = 0;
    const int64_t room = std::min(states.row_tokens, states.row_blocks * block_size);
    for (size_t i = 0; i < rows.size(); i++) {
        check_row(states, rows[i]);
        const int64_t computed = states.num_computed[rows[i]];
        check(rows[i], computed, computed + counts.at(i), room);
        total += counts[i];
    }
    if (total != num_tokens) {
        throw std::out_of_range("counts that add up to " + std::to_string(total) + " in a step of " +
                                std::to_string(num_tokens) + " tokens");
    }
}

// Slots of `count` tokens from position `begin` on.
void fill_slots(const int32_t* table, int64_t block_size, int64_t begin, int64_t count, int64_t* slots) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t position = begin + i;
        slots[i] = table[position / block_size] * block_size + position % block_size;
    }
}

}  // namespace

void fill_step_inputs(const RowStates& states, const std::vector<int64_t>& rows, const std::vector<int64_t>& counts,
                      int64_t block_size, const StepTensors& out) {
    check_step(states, rows, counts, block_size, out.num_tokens);
    const auto num_sequences = static_cast<int64_t>(rows.size()), groups = static_cast<int64_t>(states.tables.size());
    int64_t *ids = out.numbers, *positions = ids + out.num_tokens, *angle_lengths = positions + out.num_tokens;
    int64_t *slots = angle_lengths + out.num_tokens, *row_ids = slots + groups * out.num_tokens;
    int64_t *lengths = row_ids + num_sequences, *starts = lengths + num_sequences;
    int64_t start = 0;
    for (int64_t i = 0; i < num_sequences; i++) {
        const int64_t row = rows[i], count = counts[i], begin = states.num_computed[row];
        std::copy_n(states.tokens + row * states.row_tokens + begin, count, ids + start);
        for (int64_t token = 0; token < count; token++) positions[start + token] = begin + token;
        std::fill_n(angle_lengths + start, count, states.lengths_for_angles[row]);
        for (int64_t group = 0; group < groups; group++) {
            const int32_t* const table = states.tables[group] + row * states.row_blocks;
            fill_slots(table, block_size, begin, count, slots + group * out.num_tokens + start);
            std::copy_n(table, out.max_blocks, out.tables + (group * num_sequences + i) * out.max_blocks);
        }
        row_ids[i] = row;
        lengths[i] = begin + count;
        starts[i] = start;
        start += count;
    }
    starts[num_sequences] = start;
}

void finish_step(const RowStates& states, const int64_t* rows, const int64_t* lengths, int64_t num_sequences,
                 const int64_t* tokens, int64_t num_sampled) {
    for (int64_t i = 0; i < num_sequences; i++) {
        check_row(states, rows[i]);
        check(rows[i], lengths[i], lengths[i] + (i < num_sampled), states.row_tokens);
    }
    for (int64_t i = 0; i < num_sequences; i++) {
        states.num_computed[rows[i]] = lengths[i];
        if (i < num_sampled) states.tokens[rows[i] * states.row_tokens + lengths[i]] = static_cast<int32_t>(tokens[i]);
    }
}

}  // namespace quire
