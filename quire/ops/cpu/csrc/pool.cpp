#include "pool.hpp"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire {

namespace {

// About 50 µs in a meeting, where the others are computing too; longer between runs, so that the next step of a
// busy engine, which plans for a fraction of a millisecond, finds the threads awake.
constexpr int kSpinsInMeeting = 2'000;
constexpr int kSpinsBetweenRuns = 20'000;

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

void stay_on(int cpu) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);  // a hint: without it everything works as well
#else
    (void)cpu;
#endif
}

}  // namespace

void Turnstile::turn() {
    turns_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        const std::lock_guard<std::mutex> lock(mutex_);
        changed_.notify_all();
    }
}

void Turnstile::wait_beyond(uint64_t seen, int spins) {
    for (int spin = 0; spin < spins; spin++) {
        if (now() != seen) return;
        pause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    changed_.wait(lock, [&] { return turns_.load(std::memory_order_seq_cst) != seen; });
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

Pool::Pool(int threads, const std::vector<int>& cpus) : size_(threads), scratch_(threads) {
    for (int thread = 1; thread < size_; thread++) {
        const int cpu = cpus.empty() ? -1 : cpus[thread % cpus.size()];
        threads_.emplace_back([this, thread, cpu] { serve(thread, cpu); });
    }
}

Pool::~Pool() {
    closing_ = true;
    start_.turn();
    for (auto& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(int)>& work) {
    const std::lock_guard<std::mutex> lock(one_at_a_time_);
    work_ = &work;
    start_.turn();
    work(0);
    meet();
}

void Pool::serve(int thread, int cpu) {
    if (cpu >= 0) stay_on(cpu);
    uint64_t seen = 0;
    while (true) {
        start_.wait_beyond(seen, kSpinsBetweenRuns);
        if (closing_) return;
        seen++;
        (*work_)(thread);
        meet();
    }
}

void Pool::meet() {
    if (size_ == 1) return;
    const uint64_t seen = meeting_.now();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
        arrived_.store(0, std::memory_order_relaxed);
        meeting_.turn();
    } else {
        meeting_.wait_beyond(seen, kSpinsInMeeting);
    }
}

uint8_t* Pool::scratch(int thread, int64_t bytes) {
    auto& held = scratch_[thread];
    if (static_cast<int64_t>(held.size()) < bytes + 64) held.resize(bytes + 64);
    const auto address = reinterpret_cast<uintptr_t>(held.data());
    return held.data() + (64 - address % 64) % 64;
}

}  // namespace quire
