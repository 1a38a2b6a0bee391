#include "attention.hpp"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

constexpr int64_t kRowsAtOnce = 96;  // queries × heads of a task: their scores and sums stay in the second cache
constexpr int64_t kPart = 256;       // positions; a multiple of the kernels' blocks

AttentionPart part_at(float* floats, int64_t rows, int64_t value_dim) {
    return {floats, floats + rows * value_dim, floats + rows * (value_dim + 1)};
}

int64_t part_floats(int64_t rows, int64_t value_dim) { return round_up(rows * (value_dim + 2), 16); }

// `next` joins what was seen before it.
void join(const AttentionPart& before, const AttentionPart& next, int64_t rows, int64_t value_dim) {
    for (int64_t row = 0; row < rows; row++) {
        const float peak = std::max(before.peak[row], next.peak[row]);
        if (peak == -INFINITY) continue;  // neither saw anything
        const float mine = std::exp(before.peak[row] - peak), theirs = std::exp(next.peak[row] - peak);
        float *mixed = before.mixed + row * value_dim, *added = next.mixed + row * value_dim;
        for (int64_t i = 0; i < value_dim; i++) mixed[i] = mixed[i] * mine + added[i] * theirs;
        before.total[row] = before.total[row] * mine + next.total[row] * theirs;
        before.peak[row] = peak;
    }
}

}  // namespace

int64_t AttentionPlan::queries_at_once() const { return std::max<int64_t>(1, kRowsAtOnce / group()); }

void AttentionPlan::make(const Run& run) {
    tasks.clear();
    merges.clear();
    num_kept = 0;
    const int64_t count = *run.input<int64_t>(sequences.count);
    const int64_t* starts = run.input<int64_t>(sequences.starts);
    int64_t tiles = 0;
    for (int64_t sequence = 0; sequence < count; sequence++) {
        const int64_t queries = starts[sequence + 1] - starts[sequence];
        tiles += (queries + queries_at_once() - 1) / queries_at_once();
    }
    // With too few tasks for all threads, heads and then positions are divided too.
    const int64_t enough = run.pool.size() > 1 ? 4 * run.pool.size() : 0;
    const Division division = tiles >= enough              ? Division::heads_together
                              : tiles * kv_heads >= enough ? Division::heads
                                                           : Division::parts;
    for (int64_t sequence = 0; sequence < count; sequence++) add_sequence(run, sequence, division);
}

void AttentionPlan::add_sequence(const Run& run, int64_t sequence, Division division) {
    const int64_t* starts = run.input<int64_t>(sequences.starts);
    const int64_t queries = starts[sequence + 1] - starts[sequence];
    const int64_t first_position = run.input<int64_t>(sequences.lengths)[sequence] - queries;
    const int64_t tiles = (queries + queries_at_once() - 1) / queries_at_once();
    // The last queries of a prompt see most, so they come first: no thread is left with a long one at the end.
    for (int64_t tile = tiles - 1; tile >= 0; tile--) {
        const int64_t first = tile * queries_at_once(), taken = std::min(queries_at_once(), queries - first);
        const int64_t end = first_position + first + taken;
        const int64_t begin = sight.first(first_position + first);
        const int64_t first_part = begin / kPart, last_part = (end + kPart - 1) / kPart;
        if (division == Division::heads_together) {
            tasks.push_back({sequence, 0, kv_heads, first, taken, begin, end, first_part, last_part, -1});
            continue;
        }
        for (int64_t head = 0; head < kv_heads; head++) {
            if (division == Division::heads || last_part - first_part == 1) {
                tasks.push_back({sequence, head, head + 1, first, taken, begin, end, first_part, last_part, -1});
                continue;
            }
            merges.push_back({static_cast<int64_t>(tasks.size()), last_part - first_part});
            for (int64_t part = first_part; part < last_part; part++) {
                tasks.push_back({sequence, head, head + 1, first, taken, begin, end, part, part + 1, num_kept++});
            }
        }
    }
}

std::pair<std::shared_ptr<AttentionPlan>, bool> AttentionPlans::find(int64_t heads, int64_t kv_heads, Sight sight,
                                                                     const SequenceInputs& sequences) {
    for (const auto& plan : plans_) {
        const bool alike = plan->heads == heads && plan->kv_heads == kv_heads && plan->sight == sight;
        if (alike && plan->sequences.tables == sequences.tables) return {plan, false};
    }
    plans_.push_back(std::make_shared<AttentionPlan>(heads, kv_heads, sight, sequences));
    return {plans_.back(), true};
}

void Attention::prepare(const Run& run) {
    if (makes_plan_) plan_->make(run);
    next_task_ = 0;
    next_merge_ = 0;
    const int64_t rows = plan_->queries_at_once() * plan_->group();
    kept_.resize(plan_->num_kept * part_floats(rows, shape_.value_dim));
}

AttentionPart Attention::kept(int64_t index) {
    const int64_t rows = plan_->queries_at_once() * plan_->group();
    return part_at(kept_.data() + index * part_floats(rows, shape_.value_dim), rows, shape_.value_dim);
}

void Attention::run(const Run& run, int thread) {
    const auto tasks = static_cast<int64_t>(plan_->tasks.size());
    const auto merges = static_cast<int64_t>(plan_->merges.size());
    const auto take = [&]() -> const AttentionPlan::Task* {
        const int64_t index = next_task_++;
        return index < tasks ? &plan_->tasks[index] : nullptr;
    };
    const AttentionPlan::Task* next = take();
    while (const AttentionPlan::Task* task = next) {
        next = take();
        attend(run, *task, next, thread);
    }
    if (merges == 0) return;
    run.pool.meet();
    for (int64_t index = next_merge_++; index < merges; index = next_merge_++) merge(run, plan_->merges[index]);
}

AttentionTask Attention::given(const Run& run, const AttentionPlan::Task& task, int64_t head, int64_t part) const {
    const int64_t* starts = run.input<int64_t>(plan_->sequences.starts) + task.sequence;
    const int64_t length = run.input<int64_t>(plan_->sequences.lengths)[task.sequence];
    AttentionTask given{};
    given.cache = &cache_;
    given.table = run.input<int32_t>(plan_->sequences.tables, task.sequence);
    given.kv_head = head;
    given.group = plan_->group();
    given.queries = run.floats(query_, starts[0] + task.first_query) + head * given.group * cache_.head_dim;
    given.query_stride = run.stride(query_) / 4;
    given.value_dim = shape_.value_dim;
    given.num_queries = task.num_queries;
    given.first_position = length - (starts[1] - starts[0]) + task.first_query;
    given.begin = std::max(task.begin, part * kPart);
    given.end = std::min(task.end, (part + 1) * kPart);
    given.sight = shape_.sight;
    given.scale = shape_.scale;
    given.softcap = shape_.softcap;
    given.is_prompt = run.parts.of(starts[0]).is_prompt;
    return given;
}

void Attention::attend(const Run& run, const AttentionPlan::Task& task, const AttentionPlan::Task* next, int thread) {
    const int64_t rows = task.num_queries * plan_->group(), value_dim = shape_.value_dim;
    const int64_t floats = part_floats(rows, value_dim), results = task.num_heads() + 1;
    uint8_t* scratch = run.pool.scratch(thread, results * floats * 4 + run.kernels.attend_scratch(rows, cache_.head_dim));
    const auto result = [&](int64_t index) {
        return part_at(reinterpret_cast<float*>(scratch) + index * floats, rows, value_dim);
    };
    for (int64_t part = task.first_part; part < task.last_part; part++) {
        const bool is_first = part == task.first_part, is_last = part + 1 == task.last_part;
        AttentionTask coming{};
        const bool goes_on = !is_last || next != nullptr;
        if (goes_on) coming = is_last ? given(run, *next, 0, next->first_part) : given(run, task, 0, part + 1);
        for (int64_t head = task.first_head; head < task.last_head; head++) {
            const AttentionPart sum = task.kept >= 0 ? kept(task.kept) : result(head - task.first_head);
            const AttentionPart here = is_first ? sum : result(task.num_heads());
            AttentionTask now = given(run, task, head, part);
            if (goes_on && task.num_heads() == plan_->kv_heads) now.next = &coming;
            run.kernels.attend(now, here, scratch + results * floats * 4);
            if (!is_first) join(sum, here, rows, value_dim);
        }
    }
    if (task.kept >= 0) return;
    for (int64_t head = task.first_head; head < task.last_head; head++) {
        finish(run, task, head, result(head - task.first_head));
    }
}

void Attention::merge(const Run& run, const AttentionPlan::Merge& merge) {
    const AttentionPlan::Task& task = plan_->tasks[merge.first_task];
    const int64_t rows = task.num_queries * plan_->group();
    const AttentionPart first = kept(task.kept);
    for (int64_t other = 1; other < merge.count; other++) join(first, kept(task.kept + other), rows, shape_.value_dim);
    finish(run, task, task.first_head, first);
}

void Attention::finish(const Run& run, const AttentionPlan::Task& task, int64_t head, const AttentionPart& part) const {
    const int64_t first_row = run.input<int64_t>(plan_->sequences.starts)[task.sequence] + task.first_query;
    const int64_t value_dim = shape_.value_dim, group = plan_->group();
    for (int64_t row = 0; row < task.num_queries * group; row++) {
        const int64_t query_head = head * group + row % group;
        float* out = run.floats(to_, first_row + row / group) + query_head * value_dim;
        // far above all scores a sink's share is infinite, and leaves nothing to them
        const float beside = shape_.sinks == nullptr ? 0.0f : std::exp(shape_.sinks[query_head] - part.peak[row]);
        const float inverse = 1.0f / (part.total[row] + beside);
        for (int64_t i = 0; i < value_dim; i++) out[i] = part.mixed[row * value_dim + i] * inverse;
    }
}

}  // namespace quire
