// Attention of few rows, straight from the cache: keys and values are read once, so bringing them to float32 first would
// cost more than the arithmetic. Latents are read so for any rows: each is so long that a block of them in float32 would
// come from the second cache for every few rows, in twice as many bytes.
#pragma once

#include "attend_block.hpp"

namespace quire {
namespace {

constexpr int64_t kMostFewRows = 8;

// What comes from memory while a block is computed with: its values, the next block of the same head, and as much of
// what the thread attends to after this. There rows of all KV heads lie side by side, and each head's turn brings its
// share of whole ones. Latents are values themselves, and are there once they were keys.
struct NextBlocks {
    const KVRows& block;
    const KVRows& next;
    const KVRows& after;  // of the first KV head; of no positions where nothing comes
    const int64_t heads, own_head, row_bytes;
    const bool are_latents;

    QUIRE_PREFETCHES void while_scoring(int64_t key) const {
        if (!are_latents) block.fetch(block.values[std::min(block.count - 1, key)]);
        if (is_own(key)) KVRows::fetch(after.keys[key], row_bytes);
    }
    QUIRE_PREFETCHES void while_mixing(int64_t key) const {
        if (key < next.count) next.fetch(next.keys[key]);
        if (!are_latents && is_own(key)) KVRows::fetch(after.values[key], row_bytes);
    }

private:
    bool is_own(int64_t key) const { return key < after.count && key % heads == own_head; }
};

// The first rows bring what comes, on their first way through the block.
template <KVType kType>
inline void attend_few_to(const AttentionTask& task, const AttentionPart& part, const AttentionRoom& room, int64_t rows,
                          const KVRows& block, const NextBlocks& coming) {
    for_few_rows(rows, [&](int64_t row, auto count) {
        if (row == 0) return score_rows<kType, count>(task, room, row, block, coming);
        score_rows<kType, count>(task, room, row, block, NothingComes());
    });
    for (int64_t row = 0; row < rows; row++) weigh_block(task, room, part, row, block);
    for_few_rows(rows, [&](int64_t row, auto count) {
        for_columns(room, [&](int64_t column, auto vectors) {
            if (row == 0 && column == 0) return mix_columns<kType, count, vectors>(room, row, column, block, coming);
            mix_columns<kType, count, vectors>(room, row, column, block, NothingComes());
        });
    });
}

template <KVType kType>
inline void attend_few(const AttentionTask& task, const AttentionPart& part, const AttentionRoom& room, int64_t rows) {
    KVRows blocks[2], after;
    after.count = 0;
    KVRows *block = &blocks[0], *next = &blocks[1];
    block->find(task, task.begin / kBlock * kBlock, room.zeros);
    for (; block->count > 0; std::swap(block, next)) {
        next->find(task, block->begin + kBlock, room.zeros);
        if (task.next != nullptr) after.find(*task.next, task.next->begin + block->begin - task.begin, room.zeros);
        const int64_t heads = task.cache->kv_heads;
        const NextBlocks coming{*block, *next, after, heads, task.kv_head, heads * block->bytes,
                                task.cache->is_of_latents()};
        if constexpr (kType == KVType::i8) {
            next->fetch_scales(task, task.kv_head);
            if (after.count > 0) after.fetch_scales(*task.next, task.kv_head);
            block->read_scales(task);
        }
        attend_few_to<kType>(task, part, room, rows, *block, coming);
    }
}

}  // namespace
}  // namespace quire
