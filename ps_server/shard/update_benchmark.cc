// SPDX-License-Identifier: Apache-2.0

// Measures each optimizer's update in GB/s, and its ratio to STREAM's triad on
// arrays of the same size with as many threads, alternating with it. Bytes are
// those that the arithmetic reads and writes: gradients, value, slots twice,
// and the next value. What a CPU fetches of a cache line before it overwrites
// it is not counted, for either.
//
// Gradients are laid out as gRPC delivers them: in spans of 16 KiB at odd
// addresses, with borders inside elements.
//
// With --shared_memory as the first argument, values are in memory that
// processes of the host can read in place (common/shared_memory/arena.h).

#include <benchmark/benchmark.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "common/base/simd.h"
#include "common/base/thread_pool.h"
#include "common/shared_memory/arena.h"
#include "ps_server/shard/apply_step.h"

namespace holdfast {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr size_t kSpan = 16384;
// The size of the header between two frames of HTTP/2.
constexpr size_t kGap = 9;

std::vector<EncodedElements> Received(uint64_t size) {
  const size_t bytes = size * sizeof(float);
  const auto memory =
      std::make_shared<std::string>(bytes + (bytes / kSpan + 2) * kGap, '\0');
  // 2^-20 in every element.
  const std::string values = [&] {
    const std::vector<float> floats(size, 0x1p-20f);
    return std::string(reinterpret_cast<const char*>(floats.data()), bytes);
  }();
  Buffer data;
  size_t to = kGap;
  for (size_t at = 0; at < bytes;) {
    // The first span is shorter, so that borders are inside elements.
    const size_t span = std::min(at == 0 ? kSpan - 1 : kSpan, bytes - at);
    std::memcpy(&(*memory)[to], &values[at], span);
    data.Append(Buffer::FromMemory(&(*memory)[to], span, memory));
    at += span;
    to += span + kGap;
  }
  return {{proto::EXACT, size, std::move(data)}};
}

struct Rule {
  const char* name;
  const char* config;
};
// Null: private memory.
SharedArena* values_arena = nullptr;

constexpr Rule kRules[] = {
    {"sgd", "sgd {}"},
    {"momentum", "momentum { momentum: 0.9 }"},
    {"nesterov", "momentum { momentum: 0.9 nesterov: true }"},
    {"adagrad", "adagrad {}"},
    {"rmsprop", "rmsprop {}"},
    {"rmsprop_centered_momentum", "rmsprop { momentum: 0.9 centered: true }"},
    {"adam", "adam {}"},
    {"adamw", "adamw {}"},
    {"ftrl", "ftrl { l1: 0.001 }"},
};

class Bench {
 public:
  Bench(const Rule& rule, uint64_t size, int gradients) {
    proto::Optimizer config;
    google::protobuf::TextFormat::ParseFromString(rule.config, &config);
    optimizers_.push_back(MakeOptimizer(config));
    proto::StepScalars& scalars = scalars_.emplace_back();
    scalars.set_learning_rate(0.01f);
    scalars.set_bias_correction1(0.5f);
    scalars.set_bias_correction2(0.5f);

    proto::Declaration declaration;
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name("w");
    variable.add_shape(static_cast<int64_t>(size));
    variable.set_dtype(proto::FLOAT32);
    variable.mutable_initializer()->mutable_constant()->set_value(1);
    proto::Slice slice;
    slice.set_variable("w");
    slice.set_size(size);
    store_ =
        *DenseStore::Create(declaration, {slice}, 0,
                            {optimizers_[0]->initial_slots()}, values_arena);
    for (int i = 0; i < gradients; ++i) {
      sum_.terms.push_back({1, {}});
      sum_.terms.back().by_slice.push_back(Received(size));
    }
    sum_.weight_divisor = static_cast<float>(gradients);
    bytes_ = size * sizeof(float) *
             (gradients + 2 + 2 * optimizers_[0]->initial_slots().size());
  }

  void Step(const ApplyOptions& options) {
    ApplyStep(sum_, scalars_, optimizers_, options, store_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<proto::StepScalars> scalars_;
  std::unique_ptr<DenseStore> store_;
  GradientSum sum_;
  size_t bytes_ = 0;
};

// a = b + s c
class Triad {
 public:
  explicit Triad(size_t size) : a_(size, 0), b_(size, 1), c_(size, 2) {}

  void Run(ThreadPool& threads) {
    const size_t parts = threads.threads();
    threads.ParallelFor(parts, [&](size_t part) {
      const size_t begin = a_.size() * part / parts;
      const size_t end = a_.size() * (part + 1) / parts;
      RunSimd(BestSimd(), [a = &a_[begin], b = &b_[begin], c = &c_[begin],
                           size = end - begin]() ABSL_ATTRIBUTE_ALWAYS_INLINE {
#pragma GCC ivdep
        for (size_t i = 0; i < size; ++i) a[i] = b[i] + 3.0f * c[i];
      });
    });
  }
  size_t bytes() const { return 3 * sizeof(float) * a_.size(); }

 private:
  std::vector<float> a_, b_, c_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

template <typename Function>
double SecondsOf(Function f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

void Measure(benchmark::State& state, const Rule& rule, size_t bytes,
             int gradients, int num_threads, Simd simd) {
  const uint64_t size = bytes / sizeof(float);
  Bench bench(rule, size, gradients);
  Triad triad(size);
  ThreadPool threads(num_threads, "update");
  ApplyOptions options;
  options.threads = &threads;
  options.simd = simd;
  for (int i = 0; i < 3; ++i) {
    bench.Step(options);
    triad.Run(threads);
  }
  std::vector<double> updates, triads;
  for (auto _ : state) {
    // Run twice, so that the second run finds the caches as the first has left
    // them.
    triad.Run(threads);
    triads.push_back(SecondsOf([&] { triad.Run(threads); }));
    bench.Step(options);
    updates.push_back(SecondsOf([&] { bench.Step(options); }));
    state.SetIterationTime(updates.back());
  }
  const double update_rate = bench.bytes() / Median(updates) * 1e-9;
  const double triad_rate = triad.bytes() / Median(triads) * 1e-9;
  state.counters["GB/s"] = update_rate;
  state.counters["triad_GB/s"] = triad_rate;
  state.counters["of_triad"] = update_rate / triad_rate;
}

void RegisterAll() {
  for (const Rule& rule : kRules) {
    for (const size_t bytes : {65536, 1 << 20, 1 << 26}) {
      for (const int gradients : {1, 2, 3, 4}) {
        for (const int threads : {1, 2}) {
          for (const Simd simd : SupportedSimd()) {
            benchmark::RegisterBenchmark(
                absl::StrCat(rule.name, "/", bytes, "/gradients:", gradients,
                             "/threads:", threads, "/", SimdName(simd))
                    .c_str(),
                [=, &rule](benchmark::State& state) {
                  Measure(state, rule, bytes, gradients, threads, simd);
                })
                ->UseManualTime()
                ->Unit(benchmark::kMicrosecond);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  holdfast::SharedArena arena({"benchmark"});
  if (argc > 1 && std::strcmp(argv[1], "--shared_memory") == 0) {
    holdfast::values_arena = &arena;
    argv[1] = argv[0];
    --argc;
    ++argv;
  }
  holdfast::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
