// The running softmax of attention: what a task keeps for its rows, and how scores of a block become weights.
#pragma once

#include "kv_rows.hpp"

namespace quire {
namespace {

// What one task works with, cut from a thread's scratch.
struct AttentionRoom {
    int64_t dim;        // head_dim, padded to whole vectors
    int64_t value_dim;  // likewise
    float* queries;     // [rows][dim], scaled
    float* scores;      // [rows][kBlock]
    float* mixed;       // [rows][value_dim]
    float* keys;        // [kBlock][dim]
    float* values;      // [kBlock][value_dim]
    uint8_t* zeros;     // [dim] floats

    AttentionRoom(uint8_t* scratch, int64_t rows, const AttentionTask& task)
        : dim(round_up(task.cache->head_dim, kWidth)), value_dim(round_up(task.value_dim, kWidth)) {
        queries = reinterpret_cast<float*>(scratch);
        scores = queries + rows * dim;
        mixed = scores + rows * kBlock;
        keys = mixed + rows * value_dim;
        values = keys + kBlock * dim;
        zeros = reinterpret_cast<uint8_t*>(values + kBlock * value_dim);
    }

    // At most, as no value is longer than its key.
    static int64_t bytes(int64_t rows, int64_t head_dim) {
        const int64_t dim = round_up(head_dim, kWidth);
        return 4 * (2 * rows * dim + rows * kBlock + 2 * kBlock * dim + dim) + 64;
    }
};

// Which keys of a block a row may see: [first, last).
struct Seen {
    int64_t first, last;

    Seen(const AttentionTask& task, int64_t row, const KVRows& block) {
        const int64_t own = task.first_position + row / task.group;  // the query's own position
        last = std::min(block.count, own + 1 - block.begin);
        first = std::max<int64_t>(0, task.sight.first(own) - block.begin);
    }
    // Whether any of the kWidth keys from `key` on is seen.
    bool any(int64_t key) const { return key < last && key + kWidth > first; }
};

inline Floats cap(Floats scores, float softcap) {
    for (int64_t lane = 0; lane < kWidth; lane++) scores[lane] = softcap * std::tanh(scores[lane] / softcap);
    return scores;
}

// Scores that a row may not see become -inf. Returns the largest of the others.
inline float mask_row(const AttentionTask& task, const AttentionRoom& room, int64_t row, const KVRows& block) {
    const Seen seen(task, row, block);
    float* scores = room.scores + row * kBlock;
    Floats largest = all(-INFINITY);
    for (int64_t key = 0; key < block.count; key += kWidth) {
        if (!seen.any(key)) {
            store(scores + key, all(-INFINITY));
            continue;
        }
        Floats values = load(scores + key);
        if (task.softcap > 0) values = cap(values, task.softcap);
        if (key < seen.first || key + kWidth > seen.last) {
            for (int64_t lane = 0; lane < kWidth; lane++) {
                if (key + lane < seen.first || key + lane >= seen.last) values[lane] = -INFINITY;
            }
        }
        store(scores + key, values);
        largest = larger(largest, values);
    }
    return largest_of(largest);
}

// Numbers of a row, one for each key of a block, times the keys' scales or the values'.
inline void scale_row(const AttentionRoom& room, int64_t row, const float* scales, int64_t count) {
    float* numbers = room.scores + row * kBlock;
    for (int64_t key = 0; key < count; key += kWidth) store(numbers + key, load(numbers + key) * load(scales + key));
}

// Scores become weights relative to the row's new peak; what was mixed before is scaled to it.
inline void weigh_row(const AttentionTask& task, const AttentionRoom& room, const AttentionPart& part, int64_t row,
                      const KVRows& block) {
    const float largest = mask_row(task, room, row, block);
    float* scores = room.scores + row * kBlock;
    const float peak = std::max(part.peak[row], largest);
    if (peak == -INFINITY) {  // nothing seen yet
        for (int64_t key = 0; key < block.count; key += kWidth) store(scores + key, Floats{});
        return;
    }
    if (peak != part.peak[row]) {
        const float shrink = std::exp(part.peak[row] - peak);
        part.total[row] *= shrink;
        for (int64_t at = 0; at < room.value_dim; at += kWidth) {
            float* mixed = room.mixed + row * room.value_dim + at;
            store(mixed, load(mixed) * shrink);
        }
        part.peak[row] = peak;
    }
    Floats total = {};
    for (int64_t key = 0; key < block.count; key += kWidth) {
        const Floats weights = exp_of(load(scores + key) - peak);
        store(scores + key, weights);
        total += weights;
    }
    part.total[row] += sum_of(total);
}

}  // namespace
}  // namespace quire
