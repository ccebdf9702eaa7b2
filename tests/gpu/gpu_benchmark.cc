// SPDX-License-Identifier: Apache-2.0

// Measures steps per second of models on the first GPU for each kind of
// arithmetic, and for comparison the throughput of a product of large square
// matrices:
//
//   mlp        784-4096-4096-10, batches of 1024
//   resnet     examples/fashion_mnist_resnet.textproto, batches of 512
//   resnet50   ResNet-50 on 224 x 224 pixels (He et al. 2016; stride in the
//              convolutions of 3 x 3), batches of 256
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

#include <google/protobuf/text_format.h>

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
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/example_job.h"
#include "worker/model/registry.h"

ABSL_FLAG(double, seconds, 3, "Time for each model and type, in seconds.");
ABSL_FLAG(std::vector<std::string>, models,
          std::vector<std::string>({"product", "mlp", "resnet", "resnet50"}),
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

constexpr char kMlp[] = R"pb(
  layers { flatten {} }
  layers { dense { units: 4096 } }
  layers { relu {} }
  layers { dense { units: 4096 } }
  layers { relu {} }
  layers { dense { units: 10 } }
  loss { softmax_cross_entropy {} })pb";

std::string Convolution(int filters, int size, int stride) {
  return absl::StrFormat(
      "conv2d { filters: %d kernel_size: %d stride: %d padding: SAME use_bias: "
      "false }",
      filters, size, stride);
}

std::string ResNet50() {
  std::string text =
      absl::StrCat("layers { ", Convolution(64, 7, 2),
                   " } layers { batch_norm {} } layers { relu {} } "
                   "layers { max_pool2d { size: 3 stride: 2 padding: SAME } }");
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int filters = 64 << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      absl::StrAppend(
          &text, "layers { residual { layers { ", Convolution(filters, 1, 1),
          " } layers { batch_norm {} } layers { relu {} } layers { ",
          Convolution(filters, 3, stride),
          " } layers { batch_norm {} } layers { relu {} } layers { ",
          Convolution(4 * filters, 1, 1), " } layers { batch_norm {} } ");
      if (block == 0) {
        absl::StrAppend(&text, "shortcut { ",
                        Convolution(4 * filters, 1, stride),
                        " } shortcut { batch_norm {} } ");
      }
      absl::StrAppend(&text, "} } layers { relu {} } ");
    }
  }
  absl::StrAppend(&text,
                  "layers { global_average_pool2d {} } layers { dense { units: "
                  "1000 } } loss { softmax_cross_entropy {} }");
  return text;
}

struct Subject {
  std::string name;
  proto::Model model;
  ExampleSpec examples;
  int64_t batch_size = 0;
  // Floating-point operations of a step for one example: two per
  // multiplication. Layers after the first do them three times: forward, and
  // backward for kernel and input.
  double flops = 0;
};

struct Measured {
  double steps_per_second = 0;
  // In seconds.
  double upload = 0;
  double forward = 0;
};

// Fills `values` with uniform random numbers in [0, 1).
void FillAtRandom(uint64_t seed, absl::Span<float> values) {
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (float& value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = static_cast<float>(state >> 40) * 0x1p-24f;
  }
}

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

absl::StatusOr<Measured> Measure(const Subject& subject, Backend* backend,
                                 absl::Duration length) {
  const auto model =
      CreateModel(subject.model, subject.examples, 1, backend, ModelRegistry());
  if (!model.ok()) return model.status();
  const auto values = FirstValues((*model)->Variables(), 1);
  if (!values.ok()) return values.status();
  std::vector<HostBuffer> memory;
  std::vector<absl::Span<const float>> parameters;
  for (const std::vector<float>& value : *values) {
    auto pinned = backend->AllocateHost(value.size());
    if (!pinned.ok()) return pinned.status();
    absl::c_copy(value, pinned->get());
    parameters.emplace_back(pinned->get(), value.size());
    memory.push_back(*std::move(pinned));
  }
  int64_t example_size = 1;
  for (const int64_t dimension : subject.examples.shape) {
    example_size *= dimension;
  }
  const int64_t batch_size = subject.batch_size;
  const size_t size = batch_size * example_size;
  // Two batches that alternate.
  HostBuffer inputs[2];
  std::vector<int32_t> labels(batch_size);
  std::vector<int64_t> positions[2];
  for (int which = 0; which < 2; ++which) {
    auto pinned = backend->AllocateHost(size);
    if (!pinned.ok()) return pinned.status();
    inputs[which] = *std::move(pinned);
    FillAtRandom(which + 1, {inputs[which].get(), size});
    for (int64_t i = 0; i < batch_size; ++i) {
      labels[i] = i % *subject.examples.num_classes;
      positions[which].push_back(which * batch_size + i);
    }
  }
  const auto batch_of = [&](int64_t step) {
    Batch batch;
    batch.inputs = {inputs[step % 2].get(), size};
    batch.labels = labels;
    batch.positions = positions[step % 2];
    return batch;
  };

  Measured measured;
  std::vector<DeviceBuffer> staging(parameters.size());
  const auto upload = TimeOf(length / 4, [&](int64_t) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto uploaded =
          backend->Upload(parameters[i], 1, parameters[i].size(), &staging[i]);
      if (!uploaded.ok()) return uploaded.status();
    }
    return backend->AwaitUploads();
  });
  if (!upload.ok()) return upload.status();
  measured.upload = *upload;
  const auto forward = TimeOf(length / 4, [&](int64_t step) {
    return (*model)->Evaluate(parameters, batch_of(step)).status();
  });
  if (!forward.ok()) return forward.status();
  measured.forward = *forward;
  const auto one_step = [&](int64_t step) {
    Batch batch = batch_of(step);
    batch.next_inputs = {inputs[(step + 1) % 2].get(), size};
    batch.next_positions = positions[(step + 1) % 2];
    return (*model)
        ->ComputeGradients(parameters, batch,
                           [](int, absl::Span<const float>) {})
        .status();
  };
  const auto step = TimeOf(length, one_step);
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
    const absl::Status status = one_step(i);
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

absl::StatusOr<std::vector<Subject>> Subjects() {
  const auto resnet = LoadExample("fashion_mnist_resnet.textproto");
  if (!resnet.ok()) return resnet.status();
  // Arguments: multiplications of the first layer and of the others, for one
  // example.
  const auto flops = [](double first, double others) {
    return 2 * (2 * first + 3 * others);
  };
  std::vector<Subject> subjects;
  subjects.push_back({"mlp",
                      {},
                      {{28, 28}, 10},
                      1024,
                      flops(784.0 * 4096, 4096.0 * 4096 + 4096.0 * 10)});
  // Convolutions: positions x window x input channels x output channels. The
  // blocks have 28 x 28, 14 x 14 and 7 x 7 positions; the last two have a 1 x 1
  // shortcut.
  subjects.push_back(
      {"resnet",
       resnet->model(),
       {{28, 28}, 10},
       512,
       flops(784.0 * 9 * 1 * 16,
             2 * 784.0 * 9 * 16 * 16 +                            //
                 196.0 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32) +  //
                 49.0 * (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64) + 64.0 * 10)});
  subjects.push_back({"resnet50",
                      {},
                      {{224, 224, 3}, 1000},
                      256,
                      flops(118e6, 4.09e9 - 118e6)});
  const std::string texts[] = {kMlp, "", ResNet50()};
  for (size_t i = 0; i < subjects.size(); ++i) {
    if (texts[i].empty()) continue;
    if (!google::protobuf::TextFormat::ParseFromString(
            texts[i], subjects[i].model.mutable_sequential())) {
      return absl::InternalError(
          absl::StrCat("the model ", subjects[i].name, " does not parse"));
    }
  }
  return subjects;
}

absl::Status Run() {
  const absl::Duration length = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  if (const auto gpu = MakeDeviceUnderTest(); !gpu.ok()) {
    return gpu.status();
  }
  const auto subjects = Subjects();
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
    for (const Subject& subject : *subjects) {
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
