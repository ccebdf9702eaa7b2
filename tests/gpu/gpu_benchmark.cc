// SPDX-License-Identifier: Apache-2.0

// Measures steps per second of models on the first GPU for each kind of
// arithmetic, and for comparison the throughput of a product of large square
// matrices:
//
//   mlp        784-4096-4096-10, batches of 1024
//   resnet     examples/fashion_mnist_resnet.textproto, batches of 512
//   resnet50   ResNet-50 on 224 x 224 pixels (He et al. 2016; stride in the
//              convolutions of 3 x 3), batches of 256
//   mobilenet  MobileNet (Howard et al. 2017) on 112 x 112 pixels, with a
//              stride of 1 in the first convolution, batches of 128
//
// The type "tf32-u" is TF32 without cuDNN: all convolutions are unfolded. The
// types "bfloat16-a" and "float16-a" also round activations, as PyTorch's
// autocast does (DeviceOptions::activations).
//
// A step is what a worker does between a pull and a push: parameters to the
// GPU, forward and backward pass, gradients to the host. Parameters are in
// memory of Backend::AllocateHost, like pulled ones. The output also has the
// time to upload the parameters alone, and the time of the upload with a
// forward pass. torch_benchmark.py measures the same models.

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/process/flags.h"
#include "common/trace/trace.h"
#include "tests/gpu/benchmark_models.h"
#include "tests/gpu/device_under_test.h"

ABSL_FLAG(double, seconds, 3, "Time for each model and type, in seconds.");
ABSL_FLAG(std::vector<std::string>, models,
          std::vector<std::string>({"product", "mlp", "resnet", "resnet50",
                                    "mobilenet"}),
          "The models to measure.");
ABSL_FLAG(std::vector<std::string>, types,
          std::vector<std::string>({"float32", "tf32", "tf32-u", "bfloat16",
                                    "bfloat16-a", "float16", "float16-a"}),
          "The arithmetic of products.");

ABSL_FLAG(
    bool, operations, false,
    "Whether to print how long the operations of a step take on the GPU.");

namespace holdfast {
namespace {

struct Measured {
  double steps_per_second = 0;
  // In seconds.
  double upload = 0;
  double forward = 0;
};

// Measures the rate of a product of square matrices of size `side`.
absl::StatusOr<double> FlopsOfProduct(Backend* backend, int64_t side,
                                      absl::Duration length) {
  DeviceBuffer a, b, c;
  for (DeviceBuffer* buffer : {&a, &b, &c}) {
    const absl::Status status = backend->Reserve(side * side, buffer);
    if (!status.ok()) return status;
  }
  std::vector<float> values(side * side);
  FillAtRandom(1, absl::MakeSpan(values));
  for (DeviceBuffer* buffer : {&a, &b}) {
    const auto uploaded = backend->Upload(values, side, side, buffer);
    if (!uploaded.ok()) return uploaded.status();
  }
  absl::Time begin = absl::InfiniteFuture();
  int64_t products = 0;
  // The first round warms up.
  for (int round = 0;; ++round) {
    for (int i = 0; i < 5; ++i) {
      backend->MatMul(Form::kPlain, a.View(side, side), Form::kPlain,
                      b.View(side, side), c.View(side, side));
    }
    const auto download = backend->StartDownload(c.View(1, 1));
    if (!download.ok()) return download.status();
    const absl::Status status = backend->Await(*download);
    if (!status.ok()) return status;
    if (round == 0) {
      begin = SteadyNow();
      continue;
    }
    products += 5;
    const absl::Duration passed = SteadyNow() - begin;
    if (passed < length) continue;
    return 2.0 * side * side * side * static_cast<double>(products) /
           absl::ToDoubleSeconds(passed);
  }
}

// Returns the time of a call of `work` in seconds, after a few warm-up calls.
template <typename Work>
absl::StatusOr<double> TimeOf(absl::Duration length, Work work) {
  constexpr int kWarmUp = 5;
  absl::Time begin = absl::InfiniteFuture();
  for (int64_t round = 0;; ++round) {
    if (round == kWarmUp) begin = SteadyNow();
    const absl::Status status = work(round);
    if (!status.ok()) return status;
    const absl::Duration passed = SteadyNow() - begin;
    if (round < kWarmUp || passed < length) continue;
    return absl::ToDoubleSeconds(passed) /
           static_cast<double>(round + 1 - kWarmUp);
  }
}

absl::StatusOr<Measured> Measure(const BenchmarkModel& subject,
                                 Backend* backend, absl::Duration length) {
  const auto steps = BenchmarkSteps::Create(subject, backend);
  if (!steps.ok()) return steps.status();
  Measured measured;
  const auto upload =
      TimeOf(length / 4, [&](int64_t) { return (*steps)->Upload(); });
  if (!upload.ok()) return upload.status();
  measured.upload = *upload;
  const auto forward =
      TimeOf(length / 4, [&](int64_t step) { return (*steps)->Forward(step); });
  if (!forward.ok()) return forward.status();
  measured.forward = *forward;
  const auto step =
      TimeOf(length, [&](int64_t step) { return (*steps)->Step(step); });
  if (!step.ok()) return step.status();
  measured.steps_per_second = 1 / *step;
  if (!absl::GetFlag(FLAGS_operations)) return measured;

  // A step ends with its gradients, so the spans of the traced steps are
  // complete.
  constexpr int kTraced = 3;
  Tracer tracer({.on_demand = true});
  backend->SetTracer(&tracer);
  tracer.Begin();
  const absl::Time begin = tracer.Now();
  for (int i = 0; i < kTraced; ++i) {
    const absl::Status status = (*steps)->Step(i);
    if (!status.ok()) return status;
  }
  const absl::Time end = tracer.Now();
  backend->SetTracer(nullptr);
  struct Total {
    int count = 0;
    absl::Duration time;
  };
  std::map<std::string, Total> totals;
  for (const TraceTrack& track : tracer.End(begin, end).tracks) {
    for (const TraceSpan& span : track.spans) {
      if (span.kind != TraceKind::kCompute && span.kind != TraceKind::kCopy) {
        continue;
      }
      Total& total = totals[span.name];
      ++total.count;
      total.time += span.end - span.begin;
    }
  }
  std::printf("  %.3f ms a traced step, of which on the GPU:\n",
              absl::ToDoubleMilliseconds(end - begin) / kTraced);
  for (const auto& [name, total] : totals) {
    std::printf("  %8.3f ms  %4d x %s\n",
                absl::ToDoubleMilliseconds(total.time) / kTraced,
                total.count / kTraced, name.c_str());
  }
  return measured;
}

struct Arithmetic {
  const char* name;
  ProductOptions products;
};

absl::Status Run() {
  const absl::Duration length = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  if (const auto gpu = MakeDeviceUnderTest(); !gpu.ok()) {
    return gpu.status();
  }
  const auto subjects = BenchmarkModels();
  if (!subjects.ok()) return subjects.status();
  const std::vector<std::string> models = absl::GetFlag(FLAGS_models);
  const std::vector<std::string> types = absl::GetFlag(FLAGS_types);
  bool named = false;
  for (const Arithmetic& arithmetic :
       {Arithmetic{"float32", {}}, Arithmetic{"tf32", {.tf32 = true}},
        Arithmetic{"tf32-u", {.tf32 = true, .cudnn = false}},
        Arithmetic{"bfloat16", {.precision = Precision::kBfloat16}},
        Arithmetic{"bfloat16-a",
                   {.precision = Precision::kBfloat16, .activations = true}},
        Arithmetic{"float16", {.precision = Precision::kFloat16}},
        Arithmetic{"float16-a",
                   {.precision = Precision::kFloat16, .activations = true}}}) {
    if (!absl::c_linear_search(types, arithmetic.name)) continue;
    const auto backend = MakeDeviceUnderTest(arithmetic.products);
    if (!backend.ok()) return backend.status();
    if (!std::exchange(named, true)) {
      std::printf("%s\n", (*backend)->Describe().core.c_str());
      std::printf("%-9s %-10s %9s %11s %9s %10s %11s\n", "model", "type",
                  "steps/s", "examples/s", "TFLOP/s", "upload ms",
                  "forward ms");
    }
    if (absl::c_linear_search(models, "product")) {
      const auto peak = FlopsOfProduct(backend->get(), 8192, length);
      if (!peak.ok()) return peak.status();
      std::printf("%-9s %-10s %9s %11s %9.1f\n", "product", arithmetic.name, "",
                  "", *peak / 1e12);
    }
    for (const BenchmarkModel& subject : *subjects) {
      if (!absl::c_linear_search(models, subject.name)) continue;
      const auto measured = Measure(subject, backend->get(), length);
      if (!measured.ok()) return measured.status();
      const double examples =
          measured->steps_per_second * static_cast<double>(subject.batch_size);
      std::printf("%-9s %-10s %9.2f %11.0f %9.1f %10.3f %11.3f\n",
                  subject.name.c_str(), arithmetic.name,
                  measured->steps_per_second, examples,
                  examples * subject.flops / 1e12, 1e3 * measured->upload,
                  1e3 * measured->forward);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const auto line =
      holdfast::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
  if (!line.ok() || !line->arguments.empty()) {
    std::fprintf(stderr, "%s\n",
                 line.ok() ? "gpu_benchmark takes only flags"
                           : std::string(line.status().message()).c_str());
    return 2;
  }
  if (line->help) {
    std::printf("%s", holdfast::FlagsHelp({}).c_str());
    return 0;
  }
  const absl::Status status = holdfast::Run();
  if (status.ok()) return 0;
  // Without a GPU there is nothing to measure.
  const bool none =
      absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
  std::printf("%s: %s\n", none ? "nothing was measured" : "failed",
              std::string(status.message()).c_str());
  return none ? 0 : 1;
}
