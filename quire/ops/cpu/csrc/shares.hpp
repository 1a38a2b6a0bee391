// Shares: pieces of work for all threads. Each thread has a share of its own that lies in one stretch, which it takes
// piece by piece from the front; one that is done takes pieces of those that are not.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace quire {

class Shares {
public:
    struct Piece {
        int64_t first, last;
        int owner;  // whose share it is of
        bool is_empty() const { return first >= last; }
    };

    // `count` things in pieces of `piece`, whose borders shares have too. Not while anyone takes.
    void divide(int64_t count, int64_t piece, int threads) {
        if (static_cast<int>(shares_.size()) != threads) shares_ = std::vector<Share>(threads);
        piece_ = piece;
        const int64_t pieces = (count + piece - 1) / piece;
        for (int thread = 0; thread < threads; thread++) {
            Share& share = shares_[thread];
            share.first = std::min(count, pieces * thread / threads * piece);
            share.last = std::min(count, pieces * (thread + 1) / threads * piece);
            share.next.store(share.first, std::memory_order_relaxed);
        }
    }

    // The next piece for a thread; an empty one when all are taken.
    Piece take(int thread) {
        const int threads = static_cast<int>(shares_.size());
        for (int i = 0; i < threads; i++) {
            const int owner = (thread + i) % threads;
            Share& share = shares_[owner];
            if (share.next.load(std::memory_order_relaxed) >= share.last) continue;
            const int64_t first = share.next.fetch_add(piece_, std::memory_order_relaxed);
            if (first < share.last) return {first, std::min(share.last, first + piece_), owner};
        }
        return {0, 0, thread};
    }

    int64_t first_of(int thread) const { return shares_[thread].first; }
    int64_t last_of(int thread) const { return shares_[thread].last; }

private:
    struct alignas(64) Share {  // a cache line each: threads seldom look at those of others
        int64_t first = 0, last = 0;
        std::atomic<int64_t> next{0};
    };
    std::vector<Share> shares_;
    int64_t piece_ = 1;
};

}  // namespace quire
