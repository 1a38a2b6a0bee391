#include "program.hpp"

#include <utility>

namespace quire {

RowParts::RowParts(int64_t rows, int64_t first_prompt, int64_t last_prompt) {
    const auto add = [&](int64_t first, int64_t last, bool is_prompt) {
        if (first == last) return;
        parts_[count_++] = {first, last, is_prompt, packed_rows_};
        packed_rows_ += round_up(last - first, 16);
    };
    if (first_prompt == last_prompt) {
        add(0, rows, false);
        return;
    }
    add(0, first_prompt, false);
    add(first_prompt, last_prompt, true);
    add(last_prompt, rows, false);
}

const RowPart& RowParts::of(int64_t row) const {
    const RowPart* part = parts_;
    while (row >= part->last) part++;
    return *part;
}

// Operations on rows, one row after the other: what one leaves in the cache the next one finds there.
class Program::Rows : public Step {
public:
    void add(std::unique_ptr<RowOperation> operation) { operations_.push_back(std::move(operation)); }

    void run(const Run& run, int thread) override {
        const int64_t begin = run.rows * thread / run.pool.size(), end = run.rows * (thread + 1) / run.pool.size();
        for (int64_t row = begin; row < end; row++) {
            for (const auto& operation : operations_) operation->run(run, row);
        }
    }

private:
    std::vector<std::unique_ptr<RowOperation>> operations_;
};

void Program::add(std::unique_ptr<RowOperation> operation) {
    if (open_rows_ == nullptr) {
        auto rows = std::make_unique<Rows>();
        open_rows_ = rows.get();
        append(std::move(rows));
    }
    open_rows_->add(std::move(operation));
}

void Program::add(std::unique_ptr<Step> step) {
    open_rows_ = nullptr;
    append(std::move(step));
}

void Program::append(std::unique_ptr<Step> step) {
    if (!steps_.empty()) steps_.back()->next = step.get();
    steps_.push_back(std::move(step));
}

void Program::run(const Kernels& kernels, Pool& pool, int64_t rows, const RowParts& parts,
                  const std::vector<Input>& inputs) {
    const int64_t capacity = parts.packed_rows();
    const auto needed = static_cast<size_t>(row_bytes_ * capacity + 64);
    if (arena_.size() < needed) arena_.resize(needed);
    const auto address = reinterpret_cast<uintptr_t>(arena_.data());
    const Run run{kernels, pool, rows, parts, capacity, arena_.data() + (64 - address % 64) % 64, inputs};
    for (const auto& step : steps_) step->prepare(run);
    pool.run([&](int thread) {
        for (const auto& step : steps_) {
            if (step->is_idle()) continue;
            step->run(run, thread);
            pool.meet();
        }
    });
}

}  // namespace quire
