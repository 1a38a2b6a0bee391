// Experts: which of them each row goes to, and their matmuls. A matrix of an expert is read once a step for all rows
// that chose it, and not at all where none did.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "program.hpp"
#include "shares.hpp"

namespace quire {

enum class Scores : int { softmax = 0, sigmoid = 1, sparsemixer = 2 };

// How logits become the experts of a row; core/routing.py says what the words mean.
struct Routing {
    int64_t num_experts, top_k;
    Scores scores;
    bool renormalize;
    float scale;
    int64_t groups, top_groups;
    float nearness;
    int64_t counted;  // experts of a group, the best ones, whose scores add up to that of the group
};

// The experts of a row, as int32, and what their outputs are multiplied by, the best first.
struct Route final : RowOperation {
    Route(Place logits, Place ids, Place factors, const float* correction, Routing routing)
        : logits(logits), ids(ids), factors(factors), correction(correction), routing(routing) {}
    void run(const Run& run, int64_t row) const override;
    const Place logits, ids, factors;
    const float* correction;  // of each expert, added where experts are ranked; may be null
    const Routing routing;
};

// The matrices of one expert. Their memory is that of the stacks which they were cut from.
struct Expert {
    Matrix gate, up, down;
};

struct ExpertStacks {
    std::vector<Expert> experts;
    int64_t hidden, size;  // of a row, and of an expert between up and down
    int64_t top_k;
    Activation activation;
};

// The matrices of `rows` rows that a stack consists of. The stack is given as the matrices that lie one below the other
// in it; throws where the rows of an expert are not whole panels of one of them.
std::vector<Matrix> cut_stack(const std::vector<Matrix>& stack, int64_t rows);

// Rows that chose one expert and are multiplied alike: places [first, last) of ExpertRows.
struct ExpertGroup {
    const Expert* expert;
    bool is_prompt;
    int64_t first, last;
    int64_t for_gate, for_up, for_down;  // bytes: where its rows begin among those that are packed for such a matrix

    int64_t count() const { return last - first; }
};

// Memory that begins at a cache line, which kernels rely on; what it held is lost when it grows.
class AlignedBytes {
public:
    void reserve(int64_t size) {
        if (static_cast<int64_t>(held_.size()) < size + 64) held_.resize(size + 64);
    }
    uint8_t* data() { return held_.data() + (64 - reinterpret_cast<uintptr_t>(held_.data()) % 64) % 64; }

private:
    std::vector<uint8_t> held_;
};

// Which rows are with which experts, and what becomes of them between the steps of a layer. Layers come one after the
// other, so all of a program share one.
struct ExpertRows {
    std::vector<ExpertGroup> groups;  // those that have rows
    std::vector<int32_t> group_of;    // by place
    std::vector<int32_t> pair_of;     // by place: the row, times top_k, and the rank of the expert for it
    std::vector<int32_t> place_of;    // by row and rank
    AlignedBytes packed, packed_inner;
    std::vector<float> inner;    // [places][gate | up]
    std::vector<float> outputs;  // [places][hidden]
    Shares gathering, up_panels, inner_places, down_panels;
    std::vector<std::vector<int64_t>> load;  // by layer with experts, and expert: rows that chose it since the start

    // On one thread, when the experts of all rows are known; `layer` is its place in `load`.
    void assign(const Run& run, const Place& ids, const ExpertStacks& stacks, size_t layer);

private:
    void form_groups(const Run& run, const Place& ids, const ExpertStacks& stacks);
    void lay_out(const Run& run, const ExpertStacks& stacks);
    void divide(const Run& run, const ExpertStacks& stacks);
    std::vector<int32_t> group_number_;  // by expert and whether rows are of prompts
};

// Rows and what an expert's is multiplied by: where experts weigh their inputs, the row itself, otherwise the output.
struct WeighedRows {
    Place x, ids, factors;
    bool weighs_input;
};

// The steps from routed rows to the outputs of their experts.
void add_experts(Program& program, const std::shared_ptr<ExpertRows>& rows,
                 const std::shared_ptr<const ExpertStacks>& stacks, const WeighedRows& given);

// The outputs of a row's experts, the best first, each times its factor unless that has multiplied the input.
struct SumExperts final : RowOperation {
    SumExperts(std::shared_ptr<const ExpertRows> rows, Place factors, Place to, int64_t top_k, int64_t columns,
               bool weighs_input)
        : rows(std::move(rows)), factors(factors), to(to), top_k(top_k), columns(columns), weighs_input(weighs_input) {}
    void run(const Run& run, int64_t row) const override;
    const std::shared_ptr<const ExpertRows> rows;
    const Place factors, to;
    const int64_t top_k, columns;
    const bool weighs_input;
};

}  // namespace quire
