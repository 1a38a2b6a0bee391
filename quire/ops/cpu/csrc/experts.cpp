#include "experts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace quire {
namespace {

constexpr float kTiniest = 1e-20f;  // added to the sum of weights, which sigmoids may leave at 0
constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// Calls `chosen` with the ranks and numbers of the best `count` of `values`; of equals the first is the best. However
// many are NaN, every number is one of `values`, and none comes twice.
template <typename Chosen>
void take_best(const std::vector<float>& values, int64_t count, std::vector<bool>& taken, const Chosen& chosen) {
    const auto size = static_cast<int64_t>(values.size());
    taken.assign(values.size(), false);
    for (int64_t rank = 0; rank < count; rank++) {
        int64_t best = -1;
        for (int64_t i = 0; i < size; i++) {
            if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
        }
        taken[best] = true;
        chosen(rank, best);
    }
}

void make_scores(const float* logits, const Routing& routing, std::vector<float>& scores) {
    scores.resize(routing.num_experts);
    if (routing.scores == Scores::sigmoid) {
        for (int64_t i = 0; i < routing.num_experts; i++) scores[i] = 1.0f / (1.0f + std::exp(-logits[i]));
        return;
    }
    const float peak = *std::max_element(logits, logits + routing.num_experts);
    float total = 0.0f;
    for (int64_t i = 0; i < routing.num_experts; i++) total += scores[i] = std::exp(logits[i] - peak);
    for (float& score : scores) score /= total;
}

// Excludes experts that are not in the best groups.
void keep_best_groups(const Routing& routing, std::vector<float>& ranked, std::vector<bool>& taken) {
    const int64_t size = routing.num_experts / routing.groups;
    std::vector<float> of_groups, of_experts;
    for (int64_t group = 0; group < routing.groups; group++) {
        of_experts.assign(ranked.begin() + group * size, ranked.begin() + (group + 1) * size);
        float sum = 0.0f;
        take_best(of_experts, std::min(routing.counted, size), taken,
                  [&](int64_t, int64_t expert) { sum += of_experts[expert]; });
        of_groups.push_back(sum);
    }
    std::vector<bool> is_kept(routing.groups, false);
    take_best(of_groups, routing.top_groups, taken, [&](int64_t, int64_t group) { is_kept[group] = true; });
    for (int64_t i = 0; i < routing.num_experts; i++) {
        if (!is_kept[i / size]) ranked[i] = kExcluded;
    }
}

// One expert after the other, each with its share among those that come near it and were not chosen before it.
void mix_sparsely(const float* logits, const Routing& routing, std::vector<bool>& taken, int32_t* experts, float* out) {
    std::vector<bool> is_gone(routing.num_experts, false);
    const std::vector<float> values(logits, logits + routing.num_experts);
    take_best(values, routing.top_k, taken, [&](int64_t rank, int64_t expert) {
        const float largest = values[expert];
        float total = 0.0f;
        for (int64_t i = 0; i < routing.num_experts; i++) {
            const bool is_far = (largest - values[i]) / std::max(std::fabs(values[i]), largest) > routing.nearness;
            if (!is_far && !is_gone[i]) total += std::exp(values[i] - largest);
        }
        is_gone[expert] = true;
        experts[rank] = static_cast<int32_t>(expert);
        out[rank] = routing.scale / total;
    });
}

template <typename T>
void grow(std::vector<T>& buffer, int64_t size) {
    if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
}

// The matmuls of one step: every group multiplies with the same number of panels, which lie in one matrix or in two.
struct Stage {
    int64_t matrices;  // of an expert
    int64_t panels;    // of a matrix

    int64_t panels_of_group() const { return matrices * panels; }
};

Stage up_stage(const ExpertStacks& stacks) { return {2, stacks.size / kPanel}; }
Stage down_stage(const ExpertStacks& stacks) { return {1, stacks.hidden / kPanel}; }

}  // namespace

void Route::run(const Run& run, int64_t row) const {
    static thread_local std::vector<float> scores, ranked;
    static thread_local std::vector<bool> taken;
    auto* const experts = reinterpret_cast<int32_t*>(run.at(ids, row));
    float* const out = run.floats(factors, row);
    if (routing.scores == Scores::sparsemixer) {
        mix_sparsely(run.floats(logits, row), routing, taken, experts, out);
        return;
    }
    make_scores(run.floats(logits, row), routing, scores);
    ranked = scores;
    if (correction != nullptr) {
        for (int64_t i = 0; i < routing.num_experts; i++) ranked[i] += correction[i];
    }
    if (routing.groups > 1) keep_best_groups(routing, ranked, taken);
    float total = kTiniest;
    take_best(ranked, routing.top_k, taken, [&](int64_t rank, int64_t expert) {
        experts[rank] = static_cast<int32_t>(expert);
        total += out[rank] = scores[expert];
    });
    for (int64_t rank = 0; rank < routing.top_k; rank++) {
        out[rank] = (routing.renormalize ? out[rank] / total : out[rank]) * routing.scale;
    }
}

std::vector<Matrix> cut_stack(const std::vector<Matrix>& stack, int64_t rows) {
    std::vector<Matrix> experts;
    for (const Matrix& matrix : stack) {
        if (rows % kPanel != 0 || matrix.rows % rows != 0) {
            throw std::invalid_argument("a stack of " + std::to_string(matrix.rows) + " rows for experts of " +
                                        std::to_string(rows));
        }
        for (int64_t first = 0; first < matrix.rows; first += rows) {
            Matrix expert = matrix;
            expert.data = matrix.panel(first / kPanel);
            expert.rows = rows;
            if (matrix.bias != nullptr) expert.bias = matrix.bias + first;
            experts.push_back(expert);
        }
    }
    return experts;
}

void ExpertRows::assign(const Run& run, const Place& ids, const ExpertStacks& stacks, size_t layer) {
    form_groups(run, ids, stacks);
    for (const ExpertGroup& group : groups) load[layer][group.expert - stacks.experts.data()] += group.count();
    lay_out(run, stacks);
    divide(run, stacks);
}

void ExpertRows::form_groups(const Run& run, const Place& ids, const ExpertStacks& stacks) {
    const int64_t top_k = stacks.top_k, count = run.rows * top_k;
    grow(group_of, count);
    grow(pair_of, count);
    grow(place_of, count);
    group_number_.assign(stacks.experts.size() * 2, 0);
    const auto over_chosen = [&](const auto& work) {
        for (const RowPart& part : run.parts) {
            for (int64_t row = part.first; row < part.last; row++) {
                const auto* chosen = reinterpret_cast<const int32_t*>(run.at(ids, row));
                for (int64_t rank = 0; rank < top_k; rank++) {
                    work(row * top_k + rank, chosen[rank] * 2 + (part.is_prompt ? 1 : 0));
                }
            }
        }
    };
    over_chosen([&](int64_t, int32_t key) { group_number_[key]++; });
    groups.clear();
    int64_t first = 0;
    for (size_t key = 0; key < group_number_.size(); key++) {
        const int64_t size = group_number_[key];
        if (size == 0) continue;
        group_number_[key] = static_cast<int32_t>(groups.size());
        groups.push_back({&stacks.experts[key / 2], key % 2 == 1, first, first, 0, 0, 0});
        first += size;
    }
    over_chosen([&](int64_t pair, int32_t key) {
        ExpertGroup& group = groups[group_number_[key]];
        const int64_t place = group.last++;
        group_of[place] = group_number_[key];
        pair_of[place] = static_cast<int32_t>(pair);
        place_of[pair] = static_cast<int32_t>(place);
    });
}

void ExpertRows::lay_out(const Run& run, const ExpertStacks& stacks) {
    int64_t end = 0, inner_end = 0;
    for (ExpertGroup& group : groups) {
        const int64_t tiles = round_up(group.count(), kRowTile);
        const auto format = [&](const Matrix& matrix) {
            return run.kernels.format_for(matrix.layout, group.is_prompt);
        };
        const Format gate = format(group.expert->gate), up = format(group.expert->up);
        group.for_gate = group.for_up = end;
        end += round_up(tiles * row_bytes(gate, stacks.hidden), 64);
        if (up != gate) {
            group.for_up = end;
            end += round_up(tiles * row_bytes(up, stacks.hidden), 64);
        }
        group.for_down = inner_end;
        inner_end += round_up(tiles * row_bytes(format(group.expert->down), stacks.size), 64);
    }
    packed.reserve(end);
    packed_inner.reserve(inner_end);
    const int64_t places = run.rows * stacks.top_k;
    grow(inner, places * 2 * stacks.size);
    grow(outputs, places * stacks.hidden);
}

void ExpertRows::divide(const Run& run, const ExpertStacks& stacks) {
    const int threads = run.pool.size();
    const int64_t places = run.rows * stacks.top_k;
    // Pieces as Linear has them, but smaller ones for many rows: groups have rows in unequal numbers.
    const auto divide_panels = [&](Shares& shares, const Stage& stage) {
        const int64_t panels = static_cast<int64_t>(groups.size()) * stage.panels_of_group();
        int64_t piece = std::max<int64_t>(1, panels / (threads * 16));
        if (piece > 1) piece = round_up(piece, 2);  // tiles take two panels
        shares.divide(panels, piece, threads);
    };
    divide_panels(up_panels, up_stage(stacks));
    divide_panels(down_panels, down_stage(stacks));
    const int64_t piece = std::max<int64_t>(1, places / (threads * 16));
    gathering.divide(places, piece, threads);
    inner_places.divide(places, piece, threads);
}

namespace {

// What the steps of one layer's experts share.
struct ExpertStep : Step {
    ExpertStep(std::shared_ptr<ExpertRows> rows, std::shared_ptr<const ExpertStacks> stacks)
        : rows(std::move(rows)), stacks(std::move(stacks)) {}
    const std::shared_ptr<ExpertRows> rows;
    const std::shared_ptr<const ExpertStacks> stacks;
};

struct Assign final : ExpertStep {
    Assign(std::shared_ptr<ExpertRows> rows, std::shared_ptr<const ExpertStacks> stacks, Place ids, size_t layer)
        : ExpertStep(std::move(rows), std::move(stacks)), ids(ids), layer(layer) {}
    void run(const Run& run, int thread) override {
        if (thread == 0) rows->assign(run, ids, *stacks, layer);
    }
    const Place ids;
    const size_t layer;
};

// Packs the rows of each expert side by side, as its matrices take them.
struct Gather final : ExpertStep {
    Gather(std::shared_ptr<ExpertRows> rows, std::shared_ptr<const ExpertStacks> stacks, const WeighedRows& given)
        : ExpertStep(std::move(rows), std::move(stacks)), given(given) {}
    void run(const Run& run, int thread) override {
        auto* const weighed = reinterpret_cast<float*>(run.pool.scratch(thread, stacks->hidden * int64_t{sizeof(float)}));
        Shares& shares = rows->gathering;
        for (auto piece = shares.take(thread); !piece.is_empty(); piece = shares.take(thread)) {
            for (int64_t place = piece.first; place < piece.last; place++) pack(run, place, weighed);
        }
    }
    // The row as the expert at this place reads it; `weighed` is room for it.
    const float* row_at(const Run& run, int64_t place, float* weighed) const {
        const int64_t row = rows->pair_of[place] / stacks->top_k, rank = rows->pair_of[place] % stacks->top_k;
        const float* const x = run.floats(given.x, row);
        if (!given.weighs_input) return x;
        const float by = run.floats(given.factors, row)[rank];
        for (int64_t i = 0; i < stacks->hidden; i++) weighed[i] = x[i] * by;
        return weighed;
    }
    void pack(const Run& run, int64_t place, float* weighed) const {
        const ExpertGroup& group = rows->groups[rows->group_of[place]];
        const float* const from = row_at(run, place, weighed);
        const auto pack_for = [&](const Matrix& matrix, int64_t at) {
            const Format format = run.kernels.format_for(matrix.layout, group.is_prompt);
            run.kernels.pack_row(from, stacks->hidden, format, rows->packed.data() + at, place - group.first);
        };
        pack_for(group.expert->gate, group.for_gate);
        if (group.for_up != group.for_gate) pack_for(group.expert->up, group.for_up);
    }
    const WeighedRows given;
};

// activation(gate) * up, packed as the matrix down takes it.
struct Inner final : ExpertStep {
    using ExpertStep::ExpertStep;
    void run(const Run& run, int thread) override {
        const int64_t size = stacks->size;
        auto* const values = reinterpret_cast<float*>(run.pool.scratch(thread, size * int64_t{sizeof(float)}));
        Shares& shares = rows->inner_places;
        for (auto piece = shares.take(thread); !piece.is_empty(); piece = shares.take(thread)) {
            for (int64_t place = piece.first; place < piece.last; place++) {
                const ExpertGroup& group = rows->groups[rows->group_of[place]];
                const float* const gate = rows->inner.data() + place * 2 * size;
                run.kernels.gate(gate, gate + size, size, stacks->activation, values);
                const Format format = run.kernels.format_for(group.expert->down.layout, group.is_prompt);
                uint8_t* const to = rows->packed_inner.data() + group.for_down;
                run.kernels.pack_row(values, size, format, to, place - group.first);
            }
        }
    }
};

// The rows of each group times the matrices of its expert: gate and up, or down.
class Multiply final : public ExpertStep {
public:
    Multiply(std::shared_ptr<ExpertRows> rows, std::shared_ptr<const ExpertStacks> stacks, bool is_down)
        : ExpertStep(std::move(rows), std::move(stacks)),
          is_down_(is_down),
          stage_(is_down ? down_stage(*this->stacks) : up_stage(*this->stacks)) {}

    void run(const Run& run, int thread) override {
        Shares& shares = is_down_ ? rows->down_panels : rows->up_panels;
        const int64_t columns = is_down_ ? stacks->size : stacks->hidden;
        uint8_t* const scratch = run.pool.scratch(thread, run.kernels.multiply_scratch(columns));
        for (auto piece = shares.take(thread); !piece.is_empty(); piece = shares.take(thread)) {
            // a piece of another thread's share is taken near its end: there is nothing behind it to read
            const int64_t end = piece.owner == thread ? shares.last_of(thread) : piece.last;
            for (int64_t at = piece.first; at < piece.last;) {
                const int64_t first = at % stage_.panels, left = stage_.panels - first;
                const int64_t last = first + std::min(left, piece.last - at);
                multiply(run, at, first, last, reading(at, left, end, thread), scratch);
                at += last - first;
            }
        }
    }

private:
    const ExpertGroup& group_at(int64_t at) const { return rows->groups[at / stage_.panels_of_group()]; }
    bool is_up_at(int64_t at) const { return at % stage_.panels_of_group() >= stage_.panels; }
    const Matrix& matrix_at(int64_t at) const {
        const Expert& expert = *group_at(at).expert;
        return is_down_ ? expert.down : is_up_at(at) ? expert.up : expert.gate;
    }

    // What a thread reads whose share goes on to `end`: the rest of this matrix, and then the next one's beginning.
    Reading reading(int64_t at, int64_t left, int64_t end, int thread) const {
        const Matrix& matrix = matrix_at(at);
        if (end <= at + left) {
            const uint8_t* const next = is_down_ ? weights_after(thread) : nullptr;
            return {matrix.panel(at % stage_.panels + end - at), next};
        }
        return {matrix.panel(stage_.panels), matrix_at(at + left).data};
    }

    void multiply(const Run& run, int64_t at, int64_t first, int64_t last, const Reading& reading, uint8_t* scratch) {
        const ExpertGroup& group = group_at(at);
        const Matrix& matrix = matrix_at(at);
        const int64_t input = is_down_ ? group.for_down : is_up_at(at) ? group.for_up : group.for_gate;
        const int64_t stride = is_down_ ? stacks->hidden : 2 * stacks->size;
        float* const out = is_down_ ? rows->outputs.data() : rows->inner.data() + (is_up_at(at) ? stacks->size : 0);
        const uint8_t* const packed = (is_down_ ? rows->packed_inner : rows->packed).data() + input;
        const Activations x{run.kernels.format_for(matrix.layout, group.is_prompt), packed, matrix.columns};
        const Matmul matmul{&matrix, x, group.count(), out + group.first * stride, stride, reading};
        run.kernels.multiply(matmul, first, last, scratch);
    }

    const bool is_down_;
    const Stage stage_;
};

}  // namespace

void add_experts(Program& program, const std::shared_ptr<ExpertRows>& rows,
                 const std::shared_ptr<const ExpertStacks>& stacks, const WeighedRows& given) {
    rows->load.emplace_back(stacks->experts.size(), 0);
    program.add(std::make_unique<Assign>(rows, stacks, given.ids, rows->load.size() - 1));
    program.add(std::make_unique<Gather>(rows, stacks, given));
    program.add(std::make_unique<Multiply>(rows, stacks, false));
    program.add(std::make_unique<Inner>(rows, stacks));
    program.add(std::make_unique<Multiply>(rows, stacks, true));
}

void SumExperts::run(const Run& run, int64_t row) const {
    const float* const by = run.floats(factors, row);
    float* const out = run.floats(to, row);
    std::fill(out, out + columns, 0.0f);
    for (int64_t rank = 0; rank < top_k; rank++) {
        const float* const output = rows->outputs.data() + rows->place_of[row * top_k + rank] * columns;
        const float factor = weighs_input ? 1.0f : by[rank];
        for (int64_t i = 0; i < columns; i++) out[i] += output[i] * factor;
    }
}

}  // namespace quire
