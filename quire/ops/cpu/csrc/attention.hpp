// Attention of all sequences of a run over a paged cache, cut into tasks for all threads.
#pragma once

#include <atomic>
#include <vector>

#include "program.hpp"

namespace quire {

struct AttentionShape {
    int64_t heads;
    float scale;
    int64_t window;  // 0: none
    float softcap;   // 0: none
};

// Which inputs of a run say where sequences are.
struct SequenceInputs {
    int tables;   // int32 [sequences][blocks]
    int starts;   // int64 [sequences + 1]: the first row of each
    int lengths;  // int64 [sequences]: positions in the cache, the new ones included
    int count;    // int64: how many sequences there are
};

class Attention final : public Step {
public:
    Attention(Place query, Place to, PagedCache cache, AttentionShape shape, SequenceInputs sequences)
        : query_(query), to_(to), cache_(cache), shape_(shape), sequences_(sequences) {}
    void prepare(const Run& run) override;
    void run(const Run& run, int thread) override;

private:
    // Some queries of a sequence with one KV head, over all positions that they see or a part of them.
    struct Task {
        int64_t sequence, kv_head;
        int64_t first_query, num_queries;  // within the sequence's new tokens
        int64_t begin, end;
        int64_t part;  // where its result waits for the others; -1: it is the only one
    };
    // Parts of the same queries and head.
    struct Merge {
        int64_t task;  // the first of them
        int64_t count;
    };

    void plan_sequence(const Run& run, int64_t sequence, int64_t queries_at_once, int64_t positions_at_once);
    void attend(const Run& run, const Task& task, int thread);
    void merge(const Run& run, const Merge& merge) const;
    void finish(const Run& run, const Task& task, const AttentionPart& part) const;
    AttentionPart part(int64_t index);
    int64_t group() const { return shape_.heads / cache_.kv_heads; }

    const Place query_, to_;
    const PagedCache cache_;
    const AttentionShape shape_;
    const SequenceInputs sequences_;
    std::vector<Task> tasks_;
    std::vector<Merge> merges_;
    std::vector<float> parts_;
    int64_t num_parts_ = 0;
    std::atomic<int64_t> next_task_{0}, next_merge_{0};
};

}  // namespace quire
