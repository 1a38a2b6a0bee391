// Attention over a paged cache, against a softmax in double precision. Slots outside the range of positions are NaN, so
// reading one shows.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "check.hpp"

namespace quire {
namespace {

struct Case {
    KVType type;
    int64_t head_dim, kv_heads, group, num_queries, first_position, begin, end, window;
    float softcap;
    int64_t chunk = 0;
    int64_t latent_dim = 0;  // other than 0: of latents, where a value is so much of its key

    bool is_of_latents() const { return latent_dim > 0; }
    int64_t value_dim() const { return is_of_latents() ? latent_dim : head_dim; }

    std::string name() const {
        return "attend: type " + std::to_string(static_cast<int>(type)) + ", head_dim " + std::to_string(head_dim) +
               ", group " + std::to_string(group) + ", queries " + std::to_string(num_queries) + " from " +
               std::to_string(first_position) + ", keys " + std::to_string(begin) + " to " + std::to_string(end) +
               ", window " + std::to_string(window) + ", chunk " + std::to_string(chunk) + ", softcap " +
               std::to_string(softcap) + ", latent " + std::to_string(latent_dim);
    }
};

// A cache of one sequence whose blocks lie in no order, with what it holds in double precision.
struct Sample {
    static constexpr int64_t kBlockSize = 16;
    Exact<int32_t> table;
    Exact<uint8_t> keys, values;
    std::vector<double> key, value;  // [positions][kv_heads][head_dim]
    PagedCache cache;

    Sample(const Case& the, Numbers& numbers)
        : table(round_up(the.end, kBlockSize) / kBlockSize),
          keys(bytes(the)),
          values(the.is_of_latents() ? 0 : bytes(the)),
          key(the.end * the.kv_heads * the.head_dim),
          value(key.size()),
          cache{the.type, keys.get(), the.is_of_latents() ? keys.get() : values.get(), kBlockSize, the.kv_heads,
                the.head_dim} {
        for (int64_t i = 0; i < table.count(); i++) table[i] = static_cast<int32_t>(i);
        for (int64_t i = table.count() - 1; i > 0; i--) std::swap(table[i], table[numbers.below(i + 1)]);
        const int64_t width = the.kv_heads * the.head_dim;
        for (int64_t position = the.begin; position < the.end; position++) {
            if (the.type == KVType::i8) {
                put_bytes(keys, position, &key[position * width], numbers);
                put_bytes(values, position, &value[position * width], numbers);
                continue;
            }
            const int64_t slot = table[position / kBlockSize] * kBlockSize + position % kBlockSize;
            for (int64_t i = 0; i < width; i++) {
                key[position * width + i] = put(keys, slot * width + i, numbers.between(-1, 1));
                value[position * width + i] = the.is_of_latents()
                                                  ? key[position * width + i]
                                                  : put(values, slot * width + i, numbers.between(-1, 1));
            }
        }
    }

private:
    static int64_t bytes(const Case& the) {
        const PagedCache cache{the.type, nullptr, nullptr, kBlockSize, the.kv_heads, the.head_dim};
        return round_up(the.end, kBlockSize) / kBlockSize * cache.block_bytes();
    }

    // All heads of a position, each with a scale of its own.
    void put_bytes(Exact<uint8_t>& data, int64_t position, double* held, Numbers& numbers) {
        const int64_t block = table[position / kBlockSize], within = position % kBlockSize;
        for (int64_t head = 0; head < cache.kv_heads; head++) {
            const float scale = numbers.between(0.001f, 0.01f);
            std::memcpy(data.get() + cache.scale_at(block, within, head), &scale, sizeof(scale));
            auto* const bytes = reinterpret_cast<int8_t*>(data.get() + cache.vector_at(block, within, head));
            for (int64_t i = 0; i < cache.head_dim; i++, held++) {
                bytes[i] = static_cast<int8_t>(numbers.below(255) - 127);
                *held = static_cast<double>(bytes[i]) * scale;
            }
        }
    }

    double put(Exact<uint8_t>& data, int64_t at, float number) {
        if (cache.type == KVType::f32) {
            reinterpret_cast<float*>(data.get())[at] = number;
            return number;
        }
        const int mantissa = cache.type == KVType::f16 ? kHalfMantissa : kBrainMantissa;
        const double rounded = nearest(number, mantissa);
        reinterpret_cast<uint16_t*>(data.get())[at] = encoded(rounded, mantissa);
        return rounded;
    }
};

// What one row should be: the softmax's mean of values, and the logarithm of its sum.
struct Expected {
    std::vector<double> mean;
    double log_sum = -INFINITY;

    Expected(const Case& the, const Sample& sample, const AttentionTask& task, int64_t row) : mean(the.value_dim()) {
        const int64_t own = the.first_position + row / the.group, width = the.kv_heads * the.head_dim;
        const int64_t seen = the.chunk > 0 ? own - own % the.chunk : the.window > 0 ? own - the.window + 1 : 0;
        const int64_t first = std::max(the.begin, seen);
        const float* query = task.queries + row / the.group * task.query_stride + row % the.group * the.head_dim;
        std::vector<double> scores;
        for (int64_t position = first; position < std::min(the.end, own + 1); position++) {
            double score = 0;
            const double* key = &sample.key[position * width + task.kv_head * the.head_dim];
            for (int64_t i = 0; i < the.head_dim; i++) score += query[i] * key[i] * task.scale;
            if (the.softcap > 0) score = the.softcap * std::tanh(score / the.softcap);
            scores.push_back(score);
        }
        if (scores.empty()) return;
        const double peak = *std::max_element(scores.begin(), scores.end());
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - peak);
        log_sum = peak + std::log(total);
        for (size_t at = 0; at < scores.size(); at++) {
            const int64_t position = first + static_cast<int64_t>(at);
            const double* value = &sample.value[position * width + task.kv_head * the.head_dim];
            for (int64_t i = 0; i < the.value_dim(); i++) mean[i] += scores[at] / total * value[i];
        }
    }
};

void check_case(const Kernels& kernels, const Case& the, const Sample& sample, bool is_prompt, Numbers& numbers,
                Checks& checks) {
    const int64_t rows = the.num_queries * the.group;
    const int64_t stride = the.kv_heads * the.group * the.head_dim + 5;  // queries lie among other things
    Exact<float> queries((the.num_queries - 1) * stride + the.group * the.head_dim);
    queries.fill(numbers, -1, 1);
    for (int64_t kv_head = 0; kv_head < the.kv_heads; kv_head++) {
        const AttentionTask task{&sample.cache, sample.table.get(), kv_head, the.group, queries.get(), stride,
                                 the.value_dim(), the.num_queries, the.first_position, the.begin, the.end,
                                 {the.window, the.chunk}, 2.0f / std::sqrt(static_cast<float>(the.head_dim)),
                                 the.softcap, is_prompt};
        Exact<float> mixed(rows * the.value_dim()), peak(rows), total(rows);
        Exact<uint8_t> scratch(kernels.attend_scratch(rows, the.head_dim));
        kernels.attend(task, {mixed.get(), peak.get(), total.get()}, scratch.get());
        for (int64_t row = 0; row < rows; row++) {
            const Expected expected(the, sample, task, row);
            const bool nothing = expected.log_sum == -INFINITY;
            // tiles of bfloat16 round queries and weights
            const bool fits = the.head_dim % 32 == 0 && the.value_dim() % 32 == 0;
            const bool may = the.type == KVType::bf16 && fits && std::string(kernels.name) == "amx";
            const double allowed = is_prompt && may ? 6e-3 : 1e-5;
            checks.near(peak[row] + std::log(total[row]), expected.log_sum, allowed, the.name() + ": sum");
            checks.expect(nothing == (total[row] == 0), the.name() + ": total");
            for (int64_t i = 0; i < the.value_dim(); i++) {
                const double found = mixed[row * the.value_dim() + i] / (nothing ? 1.0 : total[row]);
                checks.near(found, expected.mean[i], allowed, the.name() + ": mean");
            }
        }
    }
}

void check_case(const Kernels& kernels, const Case& the, Numbers& numbers, Checks& checks) {
    const Sample sample(the, numbers);
    for (const bool is_prompt : {false, true}) check_case(kernels, the, sample, is_prompt, numbers, checks);
}

}  // namespace

void test_attend(const Kernels& kernels, Checks& checks) {
    Numbers numbers(3);
    for (const KVType type : {KVType::f32, KVType::f16, KVType::bf16, KVType::i8}) {
        for (const int64_t head_dim : {64, 80, 128, 36, 7}) {
            check_case(kernels, {type, head_dim, 2, 1, 1, 70, 0, 71, 0, 0}, numbers, checks);     // one token
            check_case(kernels, {type, head_dim, 1, 3, 1, 129, 0, 130, 0, 30}, numbers, checks);  // with a cap
            check_case(kernels, {type, head_dim, 2, 2, 5, 0, 0, 5, 0, 0}, numbers, checks);       // a short prompt
            check_case(kernels, {type, head_dim, 1, 4, 9, 61, 0, 70, 13, 0}, numbers, checks);    // with a window
            check_case(kernels, {type, head_dim, 1, 1, 3, 150, 64, 133, 0, 0}, numbers, checks);  // a part of positions
            check_case(kernels, {type, head_dim, 1, 2, 3, 150, 7, 100, 40, 0}, numbers, checks);  // nothing to see
            check_case(kernels, {type, head_dim, 1, 4, 9, 61, 48, 70, 0, 0, 16}, numbers, checks);  // over two chunks
        }
    }
    check_case(kernels, {KVType::f16, 64, 1, 3, 32, 40, 0, 72, 0, 0}, numbers, checks);  // as many rows as a task has
    for (const KVType type : {KVType::f32, KVType::f16, KVType::bf16}) {
        for (const auto& [head_dim, latent_dim] : {std::pair{96, 64}, std::pair{32, 24}, std::pair{7, 4}}) {
            check_case(kernels, {type, head_dim, 1, 5, 1, 129, 0, 130, 0, 0, 0, latent_dim}, numbers, checks);
            check_case(kernels, {type, head_dim, 1, 16, 3, 68, 64, 71, 0, 0, 0, latent_dim}, numbers, checks);
        }
    }
}

}  // namespace quire
