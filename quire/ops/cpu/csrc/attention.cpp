#include "attention.hpp"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

constexpr int64_t kRowsAtOnce = 96;     // queries × heads of a task: their scores and sums stay in the second cache
constexpr int64_t kShortestPart = 128;  // positions; below, bringing parts together costs more than it saves

}  // namespace

void Attention::prepare(const Run& run) {
    tasks_.clear();
    merges_.clear();
    num_parts_ = 0;
    next_task_ = 0;
    next_merge_ = 0;
    const int64_t count = *run.input<int64_t>(sequences_.count);
    const int64_t* starts = run.input<int64_t>(sequences_.starts);
    const int64_t* lengths = run.input<int64_t>(sequences_.lengths);
    const int64_t queries_at_once = std::max<int64_t>(1, kRowsAtOnce / group());
    int64_t wholes = 0, longest = 0;
    for (int64_t sequence = 0; sequence < count; sequence++) {
        const int64_t queries = starts[sequence + 1] - starts[sequence];
        wholes += (queries + queries_at_once - 1) / queries_at_once * cache_.kv_heads;
        longest = std::max(longest, lengths[sequence]);
    }
    // With too few tasks for all threads, positions are divided too.
    int64_t positions_at_once = INT64_MAX;
    const int64_t wanted = 4 * run.pool.size();
    if (run.pool.size() > 1 && wholes > 0 && wholes < wanted) {
        const int64_t pieces = (wanted + wholes - 1) / wholes;
        positions_at_once = std::max(kShortestPart, round_up((longest + pieces - 1) / pieces, 64));
    }
    // The last queries of a prompt see most, so they come first: no thread is left with a long one at the end.
    for (int64_t sequence = 0; sequence < count; sequence++) {
        plan_sequence(run, sequence, queries_at_once, positions_at_once);
    }
    const int64_t rows = queries_at_once * group();
    parts_.resize(num_parts_ * rows * (cache_.head_dim + 2));
}

void Attention::plan_sequence(const Run& run, int64_t sequence, int64_t queries_at_once, int64_t positions_at_once) {
    const int64_t* starts = run.input<int64_t>(sequences_.starts);
    const int64_t queries = starts[sequence + 1] - starts[sequence];
    const int64_t first_position = run.input<int64_t>(sequences_.lengths)[sequence] - queries;
    const int64_t tiles = (queries + queries_at_once - 1) / queries_at_once;
    for (int64_t tile = tiles - 1; tile >= 0; tile--) {
        const int64_t first = tile * queries_at_once, taken = std::min(queries_at_once, queries - first);
        const int64_t end = first_position + first + taken;
        const int64_t seen_from = first_position + first - shape_.window + 1;
        const int64_t begin = shape_.window > 0 ? std::max<int64_t>(0, seen_from) : 0;
        const int64_t pieces = positions_at_once >= end - begin ? 1 : (end - begin + positions_at_once - 1) / positions_at_once;
        for (int64_t head = 0; head < cache_.kv_heads; head++) {
            if (pieces > 1) merges_.push_back({static_cast<int64_t>(tasks_.size()), pieces});
            for (int64_t piece = 0; piece < pieces; piece++) {
                const int64_t from = pieces == 1 ? begin : begin + piece * positions_at_once;
                const int64_t to = pieces == 1 ? end : std::min(end, from + positions_at_once);
                tasks_.push_back({sequence, head, first, taken, from, to, pieces == 1 ? -1 : num_parts_++});
            }
        }
    }
}

AttentionPart Attention::part(int64_t index) {
    const int64_t rows = std::max<int64_t>(1, kRowsAtOnce / group()) * group();
    float* base = parts_.data() + index * rows * (cache_.head_dim + 2);
    return {base, base + rows * cache_.head_dim, base + rows * (cache_.head_dim + 1)};
}

void Attention::run(const Run& run, int thread) {
    const auto tasks = static_cast<int64_t>(tasks_.size()), merges = static_cast<int64_t>(merges_.size());
    while (true) {
        const int64_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
        if (index >= tasks) break;
        attend(run, tasks_[index], thread);
    }
    if (merges == 0) return;
    run.pool.meet();
    while (true) {
        const int64_t index = next_merge_.fetch_add(1, std::memory_order_relaxed);
        if (index >= merges) return;
        merge(run, merges_[index]);
    }
}

void Attention::attend(const Run& run, const Task& task, int thread) {
    const int64_t rows = task.num_queries * group(), head_dim = cache_.head_dim;
    const int64_t first_row = run.input<int64_t>(sequences_.starts)[task.sequence] + task.first_query;
    const int64_t queries = run.input<int64_t>(sequences_.starts)[task.sequence + 1] -
                            run.input<int64_t>(sequences_.starts)[task.sequence];
    AttentionTask given{};
    given.cache = &cache_;
    given.table = run.input<int32_t>(sequences_.tables, task.sequence);
    given.kv_head = task.kv_head;
    given.group = group();
    given.queries = run.floats(query_, first_row) + task.kv_head * group() * head_dim;
    given.query_stride = query_.row_bytes / 4;
    given.num_queries = task.num_queries;
    given.first_position = run.input<int64_t>(sequences_.lengths)[task.sequence] - queries + task.first_query;
    given.begin = task.begin;
    given.end = task.end;
    given.window = shape_.window;
    given.scale = shape_.scale;
    given.softcap = shape_.softcap;
    const int64_t own = round_up(rows * (head_dim + 2) * 4, 64);
    uint8_t* scratch = run.pool.scratch(thread, own + run.kernels.attend_scratch(rows, head_dim));
    if (task.part >= 0) {
        run.kernels.attend(given, part(task.part), scratch + own);
        return;
    }
    auto* floats = reinterpret_cast<float*>(scratch);
    const AttentionPart whole{floats, floats + rows * head_dim, floats + rows * (head_dim + 1)};
    run.kernels.attend(given, whole, scratch + own);
    finish(run, task, whole);
}

void Attention::merge(const Run& run, const Merge& merge) const {
    auto* self = const_cast<Attention*>(this);
    const Task& task = tasks_[merge.task];
    const AttentionPart first = self->part(task.part);
    const int64_t rows = task.num_queries * group(), head_dim = cache_.head_dim;
    for (int64_t other = 1; other < merge.count; other++) {
        const AttentionPart next = self->part(task.part + other);
        for (int64_t row = 0; row < rows; row++) {
            const float peak = std::max(first.peak[row], next.peak[row]);
            if (peak == -INFINITY) continue;
            const float mine = std::exp(first.peak[row] - peak), theirs = std::exp(next.peak[row] - peak);
            for (int64_t i = 0; i < head_dim; i++) {
                float& mixed = first.mixed[row * head_dim + i];
                mixed = mixed * mine + next.mixed[row * head_dim + i] * theirs;
            }
            first.total[row] = first.total[row] * mine + next.total[row] * theirs;
            first.peak[row] = peak;
        }
    }
    finish(run, task, first);
}

void Attention::finish(const Run& run, const Task& task, const AttentionPart& part) const {
    const int64_t first_row = run.input<int64_t>(sequences_.starts)[task.sequence] + task.first_query;
    const int64_t head_dim = cache_.head_dim;
    for (int64_t row = 0; row < task.num_queries * group(); row++) {
        const int64_t head = task.kv_head * group() + row % group();
        float* out = run.floats(to_, first_row + row / group()) + head * head_dim;
        const float inverse = 1.0f / part.total[row];
        for (int64_t i = 0; i < head_dim; i++) out[i] = part.mixed[row * head_dim + i] * inverse;
    }
}

}  // namespace quire
