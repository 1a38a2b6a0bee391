// What Python sees. Tensors cross as addresses; whoever passes one keeps it alive. Everything that computes gives up
// the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "angles.hpp"
#include "attention.hpp"
#include "experts.hpp"
#include "isa.hpp"
#include "operations.hpp"
#include "packing.hpp"
#include "penalties.hpp"
#include "pool.hpp"
#include "program.hpp"
#include "step_inputs.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace quire;

namespace {

template <typename T>
T* pointer(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// The kernels of one instruction set on one pool of threads.
struct Machine {
    Machine(int threads, const std::vector<int>& cpus, const std::string& variant)
        : kernels(find(variant)), pool(threads, cpus) {}

    static const Kernels& find(const std::string& variant) {
        const auto runnable = runnable_kernels();
        for (const Kernels* kernels : runnable) {
            if (variant.empty() || variant == kernels->name) return *kernels;
        }
        throw std::invalid_argument("this machine or this build has no kernels called " + variant);
    }

    const Kernels& kernels;
    Pool pool;
};

std::vector<std::string> variants() {
    std::vector<std::string> names;
    for (const Kernels* kernels : runnable_kernels()) names.emplace_back(kernels->name);
    return names;
}

int64_t matrix_bytes(int layout, int64_t rows, int64_t columns) {
    return round_up(rows, kPanel) / kPanel * panel_bytes(static_cast<Layout>(layout), round_up(columns, kGroup));
}

// `work` of every number below `count`, each thread with its share. Below `worth`, waking the others takes longer.
template <typename Work>
void over_threads(Machine& machine, int64_t count, int64_t worth, const Work& work) {
    const int64_t threads = count < worth ? 1 : machine.pool.size();
    const auto share = [&](int64_t thread) {
        for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; i++) work(i);
    };
    if (threads == 1) {
        share(0);
    } else {
        machine.pool.run(share);
    }
}

void pack_rows(Machine& machine, int source, uintptr_t from, int64_t rows, int64_t columns, int layout,
               int64_t first_row, uintptr_t data) {
    const auto kind = static_cast<Source>(source);
    const int64_t bytes = source_row_bytes(kind, columns), threads = machine.pool.size();
    const int64_t panels = round_up(first_row + rows, kPanel) / kPanel - first_row / kPanel;
    machine.pool.run([&](int thread) {
        // rows of one panel stay with one thread: they share bytes
        const int64_t begin = std::max(first_row, (first_row / kPanel + panels * thread / threads) * kPanel);
        const int64_t end = std::min(first_row + rows, (first_row / kPanel + panels * (thread + 1) / threads) * kPanel);
        for (int64_t row = begin; row < end; row++) {
            pack_matrix_row(kind, pointer<const uint8_t>(from) + (row - first_row) * bytes, columns,
                            static_cast<Layout>(layout), row, pointer<uint8_t>(data));
        }
    });
}

void matrix_rows(Machine& machine, const Matrix& matrix, uintptr_t ids, int64_t count, uintptr_t out) {
    const auto* rows = pointer<const int64_t>(ids);
    for (int64_t i = 0; i < count; i++) {
        if (rows[i] < 0 || rows[i] >= matrix.rows) {
            throw std::out_of_range("row " + std::to_string(rows[i]) + " of a matrix that has " +
                                    std::to_string(matrix.rows));
        }
    }
    over_threads(machine, count, 32, [&](int64_t i) {
        machine.kernels.matrix_row(matrix, rows[i], pointer<float>(out) + i * matrix.columns);
    });
}

// Filters are null where no row has one.
void sample(Machine& machine, uintptr_t logits, int64_t rows, int64_t columns, uintptr_t temperature, uintptr_t seed,
            uintptr_t stream, uintptr_t position, uintptr_t top_k, uintptr_t top_p, uintptr_t min_p, uintptr_t tokens) {
    over_threads(machine, rows, 2, [&](int64_t row) {
        Draw draw{};
        draw.temperature = pointer<const float>(temperature)[row];
        draw.seed = static_cast<uint64_t>(pointer<const int64_t>(seed)[row]);
        draw.stream = static_cast<uint32_t>(pointer<const int64_t>(stream)[row]);
        draw.position = static_cast<uint32_t>(pointer<const int64_t>(position)[row]);
        draw.top_k = top_k == 0 ? 0 : pointer<const int64_t>(top_k)[row];
        draw.top_p = top_p == 0 ? 1.0f : pointer<const float>(top_p)[row];
        draw.min_p = min_p == 0 ? 0.0f : pointer<const float>(min_p)[row];
        // kept by the thread: so much fresh memory for every token would cost more than the draw
        static thread_local std::vector<float> scratch;
        if (static_cast<int64_t>(scratch.size()) < draw_scratch(columns)) scratch.resize(draw_scratch(columns));
        pointer<int64_t>(tokens)[row] =
            machine.kernels.sample(pointer<const float>(logits) + row * columns, columns, draw, scratch.data());
    });
}

// A row whose largest number is none, or infinite, has no token: 0 stands for it, and `invalid` says so.
void argmax(Machine& machine, uintptr_t logits, int64_t rows, int64_t columns, uintptr_t tokens, uintptr_t invalid) {
    over_threads(machine, rows, 4, [&](int64_t row) {
        float peak;
        const int64_t token = machine.kernels.argmax(pointer<const float>(logits) + row * columns, columns, &peak);
        const bool is_invalid = !std::isfinite(peak);
        pointer<int64_t>(tokens)[row] = is_invalid ? 0 : token;
        pointer<bool>(invalid)[row] = is_invalid;
    });
}

void check_below(const char* what, int64_t number, int64_t end) {
    if (number < 0 || number >= end) {
        throw std::out_of_range(std::string(what) + " " + std::to_string(number) + " of " + std::to_string(end));
    }
}

// Of `count` rows of logits at `places`: what the model thinks of their `tokens` and of the `most` likeliest.
void token_logprobs(Machine& machine, uintptr_t logits, int64_t rows, int64_t columns, int64_t count, uintptr_t places,
                    uintptr_t tokens, int64_t most, uintptr_t packed) {
    const auto *at = pointer<const int64_t>(places), *token = pointer<const int64_t>(tokens);
    check_below("likeliest tokens", most, columns + 1);
    for (int64_t i = 0; i < count; i++) {
        check_below("row", at[i], rows);
        check_below("token", token[i], columns);
    }
    over_threads(machine, count, 2, [&](int64_t i) {
        static thread_local std::vector<float> scratch;
        static thread_local std::vector<int32_t> ids;
        if (static_cast<int64_t>(scratch.size()) < draw_scratch(columns)) scratch.resize(draw_scratch(columns));
        if (static_cast<int64_t>(ids.size()) < columns) ids.resize(columns);
        machine.kernels.token_logprobs(pointer<const float>(logits) + at[i] * columns, columns, token[i], most,
                                       scratch.data(), ids.data(), pointer<int32_t>(packed) + i * (3 + 2 * most));
    });
}

// Of `count` rows of logits at `places`: penalties for what stands in `history` before `positions`, of which the first
// `prompts` are those of prompts.
void penalize_rows(Machine& machine, uintptr_t logits, int64_t rows, int64_t columns, uintptr_t history,
                   int64_t num_rows, int64_t row_tokens, int64_t count, uintptr_t places, uintptr_t row_ids,
                   uintptr_t prompts, uintptr_t positions, uintptr_t penalties) {
    const auto *at = pointer<const int64_t>(places), *row = pointer<const int64_t>(row_ids);
    const auto *prompt = pointer<const int64_t>(prompts), *length = pointer<const int64_t>(positions);
    for (int64_t i = 0; i < count; i++) {
        check_below("row of logits", at[i], rows);
        check_below("row", row[i], num_rows);
        check_below("position", length[i], row_tokens + 1);
    }
    over_threads(machine, count, 2, [&](int64_t i) {
        static thread_local std::vector<int32_t> counts;  // zeros between calls
        if (static_cast<int64_t>(counts.size()) < columns) counts.resize(columns);
        const float* asked = pointer<const float>(penalties) + 3 * i;
        penalize(pointer<float>(logits) + at[i] * columns, columns, pointer<const int32_t>(history) + row[i] * row_tokens,
                 prompt[i], length[i], {asked[0], asked[1], asked[2]}, counts.data());
    });
}

RowStates row_states(int64_t num_rows, uintptr_t tokens, int64_t row_tokens, uintptr_t num_computed,
                     uintptr_t lengths_for_angles, const std::vector<uintptr_t>& tables, int64_t row_blocks) {
    RowStates states{num_rows, pointer<int32_t>(tokens), row_tokens, pointer<int64_t>(num_computed),
                     pointer<const int64_t>(lengths_for_angles), {}, row_blocks};
    for (const uintptr_t table : tables) states.tables.push_back(pointer<const int32_t>(table));
    return states;
}

using Spot = std::vector<int64_t>;  // offset, row_bytes, column

Place place(const Spot& spot) { return {spot.at(0), spot.at(1), spot.at(2)}; }

PagedCache paged_cache(int type, uintptr_t keys, uintptr_t values, int64_t block_size, int64_t kv_heads,
                       int64_t head_dim) {
    return {static_cast<KVType>(type), pointer<uint8_t>(keys), pointer<uint8_t>(values), block_size, kv_heads, head_dim};
}

// A program, the plans that its attentions share, and the room that its layers of experts take turns in.
struct RecordedProgram : Program {
    using Program::Program;
    AttentionPlans plans;
    std::shared_ptr<ExpertRows> expert_rows = std::make_shared<ExpertRows>();
};

// Of gates of all experts and then their ups, and of their downs.
std::shared_ptr<const ExpertStacks> expert_stacks(const std::vector<Matrix>& up, const std::vector<Matrix>& down,
                                                  int64_t hidden, int64_t size, int64_t top_k, int activation) {
    const std::vector<Matrix> ups = cut_stack(up, size), downs = cut_stack(down, hidden);
    if (ups.size() != 2 * downs.size()) throw std::invalid_argument("stacks of different numbers of experts");
    ExpertStacks stacks{{}, hidden, size, top_k, static_cast<Activation>(activation)};
    for (size_t i = 0; i < downs.size(); i++) stacks.experts.push_back({ups[i], ups[downs.size() + i], downs[i]});
    return std::make_shared<const ExpertStacks>(std::move(stacks));
}

// Rows [first_prompt, last_prompt) are of prompts.
void run_program(RecordedProgram& program, Machine& machine, int64_t rows, int64_t first_prompt, int64_t last_prompt,
                 const std::vector<std::pair<uintptr_t, int64_t>>& inputs) {
    if (first_prompt < 0 || first_prompt > last_prompt || last_prompt > rows) {
        throw std::out_of_range("rows " + std::to_string(first_prompt) + " to " + std::to_string(last_prompt) +
                                " of prompts among " + std::to_string(rows));
    }
    std::vector<Input> given;
    for (const auto& [address, stride] : inputs) given.push_back({pointer<uint8_t>(address), stride});
    program.run(machine.kernels, machine.pool, rows, RowParts(rows, first_prompt, last_prompt), given);
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // the process's machine lives as long as the process, and is not missed by anyone
    const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
    m.def("compiled_variants", compiled_variants, "Instruction sets that this build has kernels for.");
    m.def("variants", variants, "Instruction sets that this machine runs, best first.");
    m.def("matrix_bytes", matrix_bytes, "layout"_a, "rows"_a, "columns"_a);
    m.def("most_row_bytes", most_row_bytes, "columns"_a);
    m.attr("float_scale") = kFloatScale;
    m.def("rope_angles", [](uintptr_t positions, int64_t count, uintptr_t frequencies, int64_t stride, int64_t half,
                            float factor, uintptr_t cos, uintptr_t sin) {
        rope_angles(pointer<const int64_t>(positions), count, pointer<const float>(frequencies), stride, half, factor,
                    pointer<float>(cos), pointer<float>(sin));
    }, "positions"_a, "count"_a, "frequencies"_a, "stride"_a, "half"_a, "factor"_a, "cos"_a, "sin"_a, unlocked);

    nb::class_<RowStates>(m, "RowStates")
        .def("__init__", [](RowStates* self, int64_t num_rows, uintptr_t tokens, int64_t row_tokens,
                            uintptr_t num_computed, uintptr_t lengths_for_angles, const std::vector<uintptr_t>& tables,
                            int64_t row_blocks) {
            new (self) RowStates(
                row_states(num_rows, tokens, row_tokens, num_computed, lengths_for_angles, tables, row_blocks));
        }, "num_rows"_a, "tokens"_a, "row_tokens"_a, "num_computed"_a, "lengths_for_angles"_a, "tables"_a,
           "row_blocks"_a)
        .def("step_inputs", [](const RowStates& self, const std::vector<int64_t>& rows,
                               const std::vector<int64_t>& counts, int64_t block_size, int64_t num_tokens,
                               uintptr_t numbers, uintptr_t tables, int64_t max_blocks) {
            fill_step_inputs(self, rows, counts, block_size,
                             {num_tokens, pointer<int64_t>(numbers), pointer<int32_t>(tables), max_blocks});
        }, "rows"_a, "counts"_a, "block_size"_a, "num_tokens"_a, "numbers"_a, "tables"_a, "max_blocks"_a, unlocked)
        .def("finish_step", [](const RowStates& self, uintptr_t rows, uintptr_t lengths, int64_t num_sequences,
                               uintptr_t tokens, int64_t num_sampled) {
            finish_step(self, pointer<const int64_t>(rows), pointer<const int64_t>(lengths), num_sequences,
                        pointer<const int64_t>(tokens), num_sampled);
        }, "rows"_a, "lengths"_a, "num_sequences"_a, "tokens"_a, "num_sampled"_a, unlocked);

    nb::class_<Machine>(m, "Machine")
        .def(nb::init<int, const std::vector<int>&, const std::string&>(), "threads"_a, "cpus"_a, "variant"_a)
        .def_prop_ro("variant", [](const Machine& self) { return std::string(self.kernels.name); })
        .def_prop_ro("threads", [](const Machine& self) { return self.pool.size(); })
        .def("pack_rows", pack_rows, "source"_a, "from_"_a, "rows"_a, "columns"_a, "layout"_a, "first_row"_a, "data"_a,
             unlocked)
        .def("matrix_rows", matrix_rows, "matrix"_a, "ids"_a, "count"_a, "out"_a, unlocked)
        .def("sample", sample, "logits"_a, "rows"_a, "columns"_a, "temperature"_a, "seed"_a, "stream"_a, "position"_a,
             "top_k"_a, "top_p"_a, "min_p"_a, "tokens"_a, unlocked)
        .def("argmax", argmax, "logits"_a, "rows"_a, "columns"_a, "tokens"_a, "invalid"_a, unlocked)
        .def("token_logprobs", token_logprobs, "logits"_a, "rows"_a, "columns"_a, "count"_a, "places"_a, "tokens"_a,
             "most"_a, "packed"_a, unlocked)
        .def("penalize", penalize_rows, "logits"_a, "rows"_a, "columns"_a, "history"_a, "num_rows"_a, "row_tokens"_a,
             "count"_a, "places"_a, "row_ids"_a, "prompts"_a, "positions"_a, "penalties"_a, unlocked);

    nb::class_<Matrix>(m, "Matrix")
        .def("__init__",
             [](Matrix* self, int layout, uintptr_t data, int64_t rows, int64_t columns, float factor, uintptr_t bias) {
                 new (self) Matrix{static_cast<Layout>(layout), pointer<const uint8_t>(data), rows, columns, factor,
                                   pointer<const float>(bias)};
             }, "layout"_a, "data"_a, "rows"_a, "columns"_a, "factor"_a, "bias"_a);

    nb::class_<PagedCache>(m, "PagedCache")
        .def("__init__",
             [](PagedCache* self, int type, uintptr_t keys, uintptr_t values, int64_t block_size, int64_t kv_heads,
                int64_t head_dim) {
                 new (self) PagedCache(paged_cache(type, keys, values, block_size, kv_heads, head_dim));
             }, "type"_a, "keys"_a, "values"_a, "block_size"_a, "kv_heads"_a, "head_dim"_a);

    nb::class_<RecordedProgram>(m, "Program")
        .def(nb::init<int64_t>(), "bytes_per_row"_a)
        .def("add", [](RecordedProgram& self, const Spot& a, const Spot& b, const Spot& to, int64_t columns) {
            self.add(std::make_unique<Add>(place(a), place(b), place(to), columns));
        }, "a"_a, "b"_a, "to"_a, "columns"_a)
        .def("scale", [](RecordedProgram& self, const Spot& from, const Spot& to, int64_t columns, float factor) {
            self.add(std::make_unique<Scale>(place(from), place(to), columns, factor));
        }, "from_"_a, "to"_a, "columns"_a, "factor"_a)
        .def("scale_row", [](RecordedProgram& self, const Spot& from, const Spot& factor, const Spot& to, int64_t columns) {
            self.add(std::make_unique<ScaleRow>(place(from), place(factor), place(to), columns));
        }, "from_"_a, "factor"_a, "to"_a, "columns"_a)
        .def("sigmoid", [](RecordedProgram& self, const Spot& from, const Spot& to, int64_t columns) {
            self.add(std::make_unique<Sigmoid>(place(from), place(to), columns));
        }, "from_"_a, "to"_a, "columns"_a)
        .def("rms_norm", [](RecordedProgram& self, const Spot& from, const Spot& to, uintptr_t weight, int64_t columns,
                            int64_t count, int64_t weight_stride, float eps, float offset) {
            self.add(std::make_unique<RmsNorm>(place(from), place(to), pointer<const float>(weight),
                                               NormedVectors{columns, count, weight_stride}, eps, offset));
        }, "from_"_a, "to"_a, "weight"_a, "columns"_a, "count"_a, "weight_stride"_a, "eps"_a, "offset"_a)
        .def("layer_norm", [](RecordedProgram& self, const Spot& from, const Spot& to, uintptr_t weight, uintptr_t bias,
                              int64_t columns, int64_t count, int64_t weight_stride, float eps) {
            self.add(std::make_unique<LayerNorm>(place(from), place(to), pointer<const float>(weight),
                                                 pointer<const float>(bias),
                                                 NormedVectors{columns, count, weight_stride}, eps));
        }, "from_"_a, "to"_a, "weight"_a, "bias"_a, "columns"_a, "count"_a, "weight_stride"_a, "eps"_a)
        .def("gate", [](RecordedProgram& self, const Spot& from, const Spot& to, int64_t columns, int activation, bool gated) {
            self.add(std::make_unique<Gate>(place(from), place(to), columns, static_cast<Activation>(activation), gated));
        }, "from_"_a, "to"_a, "columns"_a, "activation"_a, "gated"_a)
        .def("rotate", [](RecordedProgram& self, const Spot& heads, int64_t num_heads, int64_t head_dim, int cos, int sin,
                          int64_t half) {
            self.add(std::make_unique<Rotate>(place(heads), num_heads, head_dim, cos, sin, half));
        }, "heads"_a, "num_heads"_a, "head_dim"_a, "cos"_a, "sin"_a, "half"_a)
        .def("write_kv", [](RecordedProgram& self, const Spot& key, const Spot& value, const PagedCache& cache, int slots) {
            self.add(std::make_unique<WriteKV>(place(key), place(value), cache, slots));
        }, "key"_a, "value"_a, "cache"_a, "slots"_a)
        .def("write_latent", [](RecordedProgram& self, const Spot& latent, const PagedCache& cache, int slots) {
            self.add(std::make_unique<WriteLatent>(place(latent), cache, slots));
        }, "latent"_a, "cache"_a, "slots"_a)
        .def("copy_heads", [](RecordedProgram& self, const Spot& from, int64_t from_stride, const Spot& to,
                              int64_t to_stride, int64_t num_heads, int64_t columns) {
            self.add(std::make_unique<CopyHeads>(HeadPlaces{place(from), from_stride}, HeadPlaces{place(to), to_stride},
                                                 num_heads, columns));
        }, "from_"_a, "from_stride"_a, "to"_a, "to_stride"_a, "num_heads"_a, "columns"_a)
        .def("add_lora", [](RecordedProgram& self, const Spot& x, const Spot& y, int adapters, uintptr_t down, uintptr_t up,
                            int64_t page_bytes, bool is_brain, uintptr_t pages, int64_t most_pages, uintptr_t counts, uintptr_t is_dora,
                            const std::vector<int64_t>& parts, int64_t columns, uintptr_t bias) {
            LoraPages lora{pointer<const uint8_t>(down), pointer<const uint8_t>(up), page_bytes, is_brain,
                           pointer<const int32_t>(pages), most_pages, pointer<const int32_t>(counts),
                           pointer<const int32_t>(is_dora), parts, columns};
            self.add(std::make_unique<AddLora>(place(x), place(y), adapters, std::move(lora), pointer<const float>(bias)));
        }, "x"_a, "y"_a, "adapters"_a, "down"_a, "up"_a, "page_bytes"_a, "is_brain"_a, "pages"_a, "most_pages"_a, "counts"_a,
           "is_dora"_a, "parts"_a, "columns"_a, "bias"_a)
        .def("pack", [](RecordedProgram& self, const Spot& from, const Spot& to, int64_t columns, int layout) {
            self.add(std::make_unique<Pack>(place(from), place(to), columns, static_cast<Layout>(layout)));
        }, "from_"_a, "to"_a, "columns"_a, "layout"_a)
        .def("linear", [](RecordedProgram& self, const Matrix& matrix, const Spot& from, const Spot& to) {
            self.add(std::make_unique<Linear>(std::make_shared<const Matrix>(matrix), place(from), place(to)));
        }, "matrix"_a, "from_"_a, "to"_a)
        .def("multiply_heads", [](RecordedProgram& self, const Matrix& matrix, const Spot& from, int64_t from_stride,
                                  const Spot& to, int64_t to_stride, int64_t num_heads, int64_t size) {
            self.add(std::make_unique<MultiplyHeads>(matrix, num_heads, size, HeadPlaces{place(from), from_stride},
                                                     HeadPlaces{place(to), to_stride}));
        }, "matrix"_a, "from_"_a, "from_stride"_a, "to"_a, "to_stride"_a, "num_heads"_a, "size"_a)
        .def("route", [](RecordedProgram& self, const Spot& logits, const Spot& ids, const Spot& factors,
                         uintptr_t correction, int64_t num_experts, int64_t top_k, int scores, bool renormalize,
                         float scale, float nearness, int64_t groups, int64_t top_groups, int64_t counted) {
            const Routing routing{num_experts, top_k,      static_cast<Scores>(scores), renormalize, scale, groups,
                                  top_groups,  nearness,   counted};
            self.add(std::make_unique<Route>(place(logits), place(ids), place(factors),
                                             pointer<const float>(correction), routing));
        }, "logits"_a, "ids"_a, "factors"_a, "correction"_a, "num_experts"_a, "top_k"_a, "scores"_a, "renormalize"_a,
           "scale"_a, "nearness"_a, "groups"_a, "top_groups"_a, "counted"_a)
        .def("experts", [](RecordedProgram& self, const std::vector<Matrix>& up, const std::vector<Matrix>& down,
                           const Spot& x, const Spot& ids, const Spot& factors, int64_t hidden, int64_t size, int64_t top_k,
                           int activation, bool weighs_input) {
            add_experts(self, self.expert_rows, expert_stacks(up, down, hidden, size, top_k, activation),
                        {place(x), place(ids), place(factors), weighs_input});
        }, "up"_a, "down"_a, "x"_a, "ids"_a, "factors"_a, "hidden"_a, "size"_a, "top_k"_a, "activation"_a, "weighs_input"_a)
        .def("sum_experts", [](RecordedProgram& self, const Spot& factors, const Spot& to, int64_t top_k, int64_t columns,
                               bool weighs_input) {
            self.add(std::make_unique<SumExperts>(self.expert_rows, place(factors), place(to), top_k, columns, weighs_input));
        }, "factors"_a, "to"_a, "top_k"_a, "columns"_a, "weighs_input"_a)
        .def("expert_load", [](const RecordedProgram& self) { return self.expert_rows->load; })
        .def("attention", [](RecordedProgram& self, const Spot& query, const Spot& to, const PagedCache& cache, int64_t heads,
                             int64_t value_dim, float scale, int64_t window, int64_t chunk, float softcap, uintptr_t sinks, int tables,
                             int starts, int lengths, int count) {
            const SequenceInputs sequences{tables, starts, lengths, count};
            const AttentionShape shape{heads, value_dim, scale, {window, chunk}, softcap, pointer<const float>(sinks)};
            auto [plan, is_new] = self.plans.find(heads, cache.kv_heads, shape.sight, sequences);
            self.add(std::make_unique<Attention>(place(query), place(to), cache, shape, plan, is_new));
        }, "query"_a, "to"_a, "cache"_a, "heads"_a, "value_dim"_a, "scale"_a, "window"_a, "chunk"_a, "softcap"_a, "sinks"_a,
           "tables"_a, "starts"_a, "lengths"_a, "count"_a)
        .def("run", run_program, "machine"_a, "rows"_a, "first_prompt"_a, "last_prompt"_a, "inputs"_a, unlocked);
}
