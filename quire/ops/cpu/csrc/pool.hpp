// The one pool of threads. The caller is thread 0; the others wait for work, first spinning, then asleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

// A number that threads wait on: they spin for a while, because the next change is usually microseconds away, and then
// sleep, because a thread that spins for long takes a core from those who have work.
class Turnstile {
public:
    uint64_t now() const { return turns_.load(std::memory_order_acquire); }
    void turn();
    void wait_beyond(uint64_t seen, int spins);

private:
    std::atomic<uint64_t> turns_{0};
    std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
};

class Pool {
public:
    // `cpus`, where given, says on which processor each thread stays; the caller is left alone.
    Pool(int threads, const std::vector<int>& cpus);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int size() const { return size_; }

    // Every thread runs `work` with its number. One at a time: whoever comes second waits.
    void run(const std::function<void(int)>& work);

    // Within `run`: all threads come this far before any goes on.
    void meet();

    // Memory of one thread, aligned to 64 bytes; what it held is lost when it grows.
    uint8_t* scratch(int thread, int64_t bytes);

private:
    void serve(int thread, int cpu);

    const int size_;
    std::mutex one_at_a_time_;
    const std::function<void(int)>* work_ = nullptr;
    std::atomic<bool> closing_{false};
    Turnstile start_;
    Turnstile meeting_;
    std::atomic<int> arrived_{0};
    std::vector<std::vector<uint8_t>> scratch_;
    std::vector<std::thread> threads_;
};

}  // namespace quire
