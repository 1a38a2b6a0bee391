// Program: the operations of a model's forward, recorded once and run as one call. Values live in one arena, a row a
// token; operations on rows run back to back on the same rows, so that only matmuls and attention make threads meet.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.hpp"
#include "pool.hpp"

namespace quire {

// Where a value lies: in the arena, at `offset` for a single row and that many times further for more of them; or, where
// `offset` is negative, in input -1 - offset, whose own stride then counts.
struct Place {
    int64_t offset;     // bytes, for one row
    int64_t row_bytes;  // from one row to the next
    int64_t column = 0;  // bytes into each row
};

// A tensor given to a run: its address, and elements from one row to the next.
struct Input {
    uint8_t* data;
    int64_t stride;
};

// Neighbouring rows that are multiplied alike.
struct RowPart {
    int64_t first, last;
    bool is_prompt;
    int64_t packed_first;  // where its first row stands among packed ones: tiles of 16 are whole

    int64_t count() const { return last - first; }
};

// The rows of a run: those in front of prompts, prompts, and those behind them.
class RowParts {
public:
    RowParts(int64_t rows, int64_t first_prompt, int64_t last_prompt);

    const RowPart* begin() const { return parts_; }
    const RowPart* end() const { return parts_ + count_; }
    const RowPart& of(int64_t row) const;
    int64_t packed_rows() const { return packed_rows_; }

private:
    RowPart parts_[3];
    int count_ = 0;
    int64_t packed_rows_ = 0;
};

// One run: everything that differs from the next one.
struct Run {
    const Kernels& kernels;
    Pool& pool;
    int64_t rows;
    RowParts parts;
    int64_t capacity;  // rows that the arena is laid out for
    uint8_t* arena;
    const std::vector<Input>& inputs;

    uint8_t* at(const Place& place, int64_t row = 0) const {
        if (place.offset < 0) return inputs[-1 - place.offset].data + row * stride(place) + place.column;
        return arena + place.offset * capacity + row * place.row_bytes + place.column;
    }
    // Bytes from one row of a value to the next.
    int64_t stride(const Place& place) const {
        return place.offset < 0 ? inputs[-1 - place.offset].stride * int64_t{sizeof(float)} : place.row_bytes;
    }
    float* floats(const Place& place, int64_t row = 0) const { return reinterpret_cast<float*>(at(place, row)); }

    template <typename T>
    const T* input(int index, int64_t row = 0) const {
        return reinterpret_cast<const T*>(inputs[index].data) + row * inputs[index].stride;
    }
};

// What is done to one row, independently of all others.
class RowOperation {
public:
    virtual ~RowOperation() = default;
    virtual void run(const Run& run, int64_t row) const = 0;
};

// What all threads do together.
class Step {
public:
    virtual ~Step() = default;
    // On the thread that runs the program, before the others are called.
    virtual void prepare(const Run&) {}
    virtual void run(const Run& run, int thread) = 0;
    // Whether this run has nothing to do here, so that threads need not meet. After `prepare`.
    virtual bool is_idle() const { return false; }
    // Where the weights begin that a thread reads in this step; null where it reads none. After `prepare`.
    virtual const uint8_t* weights_of(int) const { return nullptr; }
    // The same of the next step that reads any.
    const uint8_t* weights_after(int thread) const {
        for (const Step* step = next; step != nullptr; step = step->next) {
            if (const uint8_t* weights = step->weights_of(thread)) return weights;
        }
        return nullptr;
    }

    const Step* next = nullptr;  // of the program
};

class Program {
public:
    explicit Program(int64_t arena_bytes_per_row) : row_bytes_(arena_bytes_per_row) {}
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void add(std::unique_ptr<RowOperation> operation);
    void add(std::unique_ptr<Step> step);
    void run(const Kernels& kernels, Pool& pool, int64_t rows, const RowParts& parts, const std::vector<Input>& inputs);

private:
    const int64_t row_bytes_;
    void append(std::unique_ptr<Step> step);
    std::vector<std::unique_ptr<Step>> steps_;
    class Rows;
    Rows* open_rows_ = nullptr;  // the last step, while it is one that takes operations on rows
    std::vector<uint8_t> arena_;
};

}  // namespace quire
