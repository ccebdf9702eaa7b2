// SPDX-License-Identifier: Apache-2.0

// Measures the milliseconds for one gradient of the MLP of fashion_mnist_mlp
// (784-512-512-10, batch 100) on one thread, and its arithmetic rate, next to
// the rates of the matrix products alone and of a large square product, which
// is the best that OpenBLAS reaches.

#include <benchmark/benchmark.h>
#include <google/protobuf/text_format.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/base/random.h"
#include "worker/backend/cpu/blas_core.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/sequential.h"

namespace holdfast {
namespace {

constexpr int64_t kBatchSize = 100;
constexpr int64_t kInputs = 784;

std::vector<float> RandomValues(int64_t size, float scale) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t bits = Philox4x32({static_cast<uint32_t>(i)}, {1})[0];
    values[i] = scale * (static_cast<float>(bits >> 8) / (1 << 23) - 1);
  }
  return values;
}

std::unique_ptr<CpuBackend> MakeBackend() {
  return *CpuBackend::Create({/*threads=*/1});
}

void SetFlops(benchmark::State& state, double flops) {
  state.counters["flop/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

struct Mlp {
  Mlp() {
    proto::Sequential config;
    google::protobuf::TextFormat::ParseFromString(
        R"pb(
          layers { flatten {} }
          layers { dense { units: 512 } }
          layers { relu {} }
          layers { dense { units: 512 } }
          layers { relu {} }
          layers { dense { units: 10 } }
          loss { softmax_cross_entropy {} }
        )pb",
        &config);
    model =
        *CreateSequential(config, {{28, 28}, 10}, /*seed=*/0, backend.get());
    for (const proto::Variable& variable : model->Variables()) {
      int64_t size = 1;
      for (int64_t dimension : variable.shape()) size *= dimension;
      values.push_back(RandomValues(size, 0.05f));
    }
    parameters.assign(values.begin(), values.end());
    for (int64_t i = 0; i < kBatchSize; ++i) labels.push_back(i % 10);
  }
  Batch batch() const { return {inputs, labels}; }

  std::unique_ptr<CpuBackend> backend = MakeBackend();
  std::unique_ptr<NetworkModel> model;
  std::vector<std::vector<float>> values;
  std::vector<absl::Span<const float>> parameters;
  std::vector<float> inputs = RandomValues(kBatchSize * kInputs, 1.0f);
  std::vector<int32_t> labels;
};

// A product is 2 m n k operations. Forward and dW: each kernel once; dx: each
// but the first layer's.
constexpr double kForwardFlops =
    2.0 * kBatchSize * (784 * 512 + 512 * 512 + 512 * 10);
constexpr double kGradientFlops =
    2 * kForwardFlops + 2.0 * kBatchSize * (512 * 512 + 512 * 10);

void BM_Gradient(benchmark::State& state) {
  Mlp mlp;
  for (auto _ : state) {
    const auto result = mlp.model->ComputeGradients(
        mlp.parameters, mlp.batch(), [](int, absl::Span<const float> gradient) {
          benchmark::DoNotOptimize(gradient.data());
        });
    if (!result.ok()) state.SkipWithError("ComputeGradients failed");
  }
  SetFlops(state, kGradientFlops);
}
BENCHMARK(BM_Gradient)->Unit(benchmark::kMillisecond);

void BM_Forward(benchmark::State& state) {
  Mlp mlp;
  for (auto _ : state) {
    const auto result = mlp.model->Evaluate(mlp.parameters, mlp.batch());
    if (!result.ok()) state.SkipWithError("Evaluate failed");
  }
  SetFlops(state, kForwardFlops);
}
BENCHMARK(BM_Forward)->Unit(benchmark::kMillisecond);

// The eight products of BM_Gradient, and nothing else.
void BM_ProductsOfAGradient(benchmark::State& state) {
  const auto backend = MakeBackend();
  struct Kernel {
    int64_t inputs, units;
    std::vector<float> x, w, y, dw;
  };
  std::vector<Kernel> kernels = {{784, 512}, {512, 512}, {512, 10}};
  for (Kernel& k : kernels) {
    k.x = RandomValues(kBatchSize * k.inputs, 1.0f);
    k.w = RandomValues(k.inputs * k.units, 0.05f);
    k.y = RandomValues(kBatchSize * k.units, 1.0f);
    k.dw = RandomValues(k.inputs * k.units, 1.0f);
  }
  for (auto _ : state) {
    for (Kernel& k : kernels) {
      const Matrix x = {k.x.data(), kBatchSize, k.inputs};
      const Matrix w = {k.w.data(), k.inputs, k.units};
      const Matrix y = {k.y.data(), kBatchSize, k.units};
      const Matrix dw = {k.dw.data(), k.inputs, k.units};
      backend->MatMul(Form::kPlain, x, Form::kPlain, w, y);
      backend->MatMul(Form::kTransposed, x, Form::kPlain, y, dw);
      if (k.inputs == kInputs) continue;
      backend->MatMul(Form::kPlain, y, Form::kTransposed, w, x);
    }
    // Otherwise values would grow from round to round.
    state.PauseTiming();
    for (Kernel& k : kernels) k.x = RandomValues(k.x.size(), 1.0f);
    state.ResumeTiming();
  }
  SetFlops(state, kGradientFlops);
}
BENCHMARK(BM_ProductsOfAGradient)->Unit(benchmark::kMillisecond);

void BM_SquareProduct(benchmark::State& state) {
  const auto backend = MakeBackend();
  const int64_t n = state.range(0);
  const std::vector<float> a = RandomValues(n * n, 1.0f);
  std::vector<float> c(n * n);
  for (auto _ : state) {
    backend->MatMul(Form::kPlain, {a.data(), n, n}, Form::kPlain,
                    {a.data(), n, n}, {c.data(), n, n});
    benchmark::DoNotOptimize(c.data());
  }
  SetFlops(state, 2.0 * n * n * n);
}
BENCHMARK(BM_SquareProduct)->Arg(2048)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const absl::Status restarted = holdfast::RestartWithBetterBlasCore(argv);
  if (!restarted.ok())
    std::fprintf(stderr, "%s\n", restarted.ToString().c_str());
  std::printf("OpenBLAS core: %s\n",
              holdfast::MakeBackend()->Describe().core.c_str());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
