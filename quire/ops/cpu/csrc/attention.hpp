// Attention of all sequences of a run over a paged cache, cut into tasks for all threads.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "program.hpp"

namespace quire {

struct AttentionShape {
    int64_t heads;
    int64_t value_dim;  // that of keys, or of latents as many of their numbers as values are made of
    float scale;
    Sight sight;
    float softcap;       // 0: none
    const float* sinks;  // of each head, the score of a key without a value; null: there are none
};

// Which inputs of a run say where sequences are.
struct SequenceInputs {
    int tables;   // int32 [sequences][blocks]
    int starts;   // int64 [sequences + 1]: the first row of each
    int lengths;  // int64 [sequences]: positions in the cache, the new ones included
    int count;    // int64: how many sequences there are
};

// How one run's attention is divided. Positions are cut at fixed places, and the parts of a query are always merged in
// order, by whomever they were computed: neither the batch nor the number of threads changes a result.
class AttentionPlan {
public:
    // Some queries of a sequence with KV heads [first_head, last_head), over parts [first_part, last_part) of the
    // positions: one head, or one part after the other with all heads, whose keys and values lie side by side.
    struct Task {
        int64_t sequence, first_head, last_head;
        int64_t first_query, num_queries;  // within the sequence's new tokens
        int64_t begin, end;                // positions that any of them sees
        int64_t first_part, last_part;
        int64_t kept;  // where a part's result waits for the others; -1: the task has all parts

        int64_t num_heads() const { return last_head - first_head; }
    };
    // Neighbouring tasks with parts of the same queries and head.
    struct Merge {
        int64_t first_task, count;
    };

    AttentionPlan(int64_t heads, int64_t kv_heads, Sight sight, SequenceInputs sequences)
        : heads(heads), kv_heads(kv_heads), sight(sight), sequences(sequences) {}
    void make(const Run& run);

    int64_t group() const { return heads / kv_heads; }
    int64_t queries_at_once() const;

    const int64_t heads, kv_heads;
    const Sight sight;
    const SequenceInputs sequences;
    std::vector<Task> tasks;
    std::vector<Merge> merges;
    int64_t num_kept = 0;

private:
    enum class Division { heads_together, heads, parts };
    void add_sequence(const Run& run, int64_t sequence, Division division);
};

// The plans of one program, each made once for all layers that are divided alike.
class AttentionPlans {
public:
    // A plan, and whether it is new: then the layer that asked has to make it in every run.
    std::pair<std::shared_ptr<AttentionPlan>, bool> find(int64_t heads, int64_t kv_heads, Sight sight,
                                                         const SequenceInputs& sequences);

private:
    std::vector<std::shared_ptr<AttentionPlan>> plans_;
};

class Attention final : public Step {
public:
    // Layers that are divided alike share a plan; the first of them makes it.
    Attention(Place query, Place to, PagedCache cache, AttentionShape shape, std::shared_ptr<AttentionPlan> plan,
              bool makes_plan)
        : query_(query), to_(to), cache_(cache), shape_(shape), plan_(std::move(plan)), makes_plan_(makes_plan) {}
    void prepare(const Run& run) override;
    void run(const Run& run, int thread) override;

private:
    // `next` is the task that the thread takes after this one, or null.
    void attend(const Run& run, const AttentionPlan::Task& task, const AttentionPlan::Task* next, int thread);
    AttentionTask given(const Run& run, const AttentionPlan::Task& task, int64_t head, int64_t part) const;
    void merge(const Run& run, const AttentionPlan::Merge& merge);
    void finish(const Run& run, const AttentionPlan::Task& task, int64_t head, const AttentionPart& part) const;
    AttentionPart kept(int64_t index);

    const Place query_, to_;
    const PagedCache cache_;
    const AttentionShape shape_;
    const std::shared_ptr<AttentionPlan> plan_;
    const bool makes_plan_;
    std::vector<float> kept_;
    std::atomic<int64_t> next_task_{0}, next_merge_{0};
};

}  // namespace quire
