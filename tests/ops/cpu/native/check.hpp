// What every test of the kernels uses: expectations that say what went wrong, numbers that are the same on every
// machine, and memory that ends where the kernels must end, so that the sanitizers see whoever goes beyond.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <string>

#include "kernels.hpp"

namespace quire {

// Counts what does not hold and prints the first few; tests go on, so one run shows all that is wrong.
class Checks {
public:
    explicit Checks(std::string variant) : variant_(std::move(variant)) {}

    void expect(bool holds, const std::string& what) {
        made_++;
        if (holds) return;
        if (++failed_ <= kPrinted) std::fprintf(stderr, "%s: %s\n", variant_.c_str(), what.c_str());
    }

    void near(double found, double wanted, double allowed, const std::string& what) {
        const bool same = found == wanted || (std::isnan(found) && std::isnan(wanted));
        if (same || std::abs(found - wanted) <= allowed) {
            made_++;
            return;
        }
        char numbers[120];
        std::snprintf(numbers, sizeof(numbers), ": found %.9g, wanted %.9g, within %.3g", found, wanted, allowed);
        expect(false, what + numbers);
    }

    int64_t made() const { return made_; }
    int64_t failed() const { return failed_; }

private:
    static constexpr int64_t kPrinted = 20;
    std::string variant_;
    int64_t made_ = 0, failed_ = 0;
};

// The same numbers everywhere, which the standard library's distributions do not promise.
class Numbers {
public:
    explicit Numbers(uint64_t seed) : state_(seed * 2654435761u + 1) {}

    uint32_t bits() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state_ >> 33);
    }
    int64_t below(int64_t limit) { return bits() % limit; }
    float between(float low, float high) { return low + (high - low) * static_cast<float>(bits()) / 2147483648.0f; }

private:
    uint64_t state_;
};

// Exactly so many elements on the heap, each of whose bytes is 0xff at first: NaN as a float of any width. They begin
// where a line of the cache does, as what kernels get of the pool.
template <typename Element>
class Exact {
public:
    explicit Exact(int64_t count) : count_(count), data_(new (kLine) Element[count]) {
        auto* bytes = reinterpret_cast<uint8_t*>(data_.get());
        std::fill(bytes, bytes + count * static_cast<int64_t>(sizeof(Element)), uint8_t{0xff});
    }
    Element* get() { return data_.get(); }
    const Element* get() const { return data_.get(); }
    int64_t count() const { return count_; }
    Element& operator[](int64_t index) { return data_[index]; }
    const Element& operator[](int64_t index) const { return data_[index]; }

    void fill(Numbers& numbers, float low, float high) {
        for (int64_t i = 0; i < count_; i++) data_[i] = numbers.between(low, high);
    }

private:
    static constexpr std::align_val_t kLine{64};
    struct Free {
        void operator()(Element* data) const { ::operator delete[](data, kLine); }
    };
    int64_t count_;
    std::unique_ptr<Element[], Free> data_;
};

// A float of `mantissa` stored bits, 16 in all: float16 has 10 and bfloat16 has 7.
double decoded(uint16_t bits, int mantissa);

// The nearest number that such a float holds, of two the even one.
double nearest(double value, int mantissa);

// The bits of a number that such a float holds.
uint16_t encoded(double value, int mantissa);

constexpr int kHalfMantissa = 10, kBrainMantissa = 7;

void test_multiply(const Kernels& kernels, Checks& checks);
void test_rows(const Kernels& kernels, Checks& checks);
void test_attend(const Kernels& kernels, Checks& checks);

}  // namespace quire
