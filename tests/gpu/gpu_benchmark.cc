// Steps per second of two models on the first GPU, by way of its arithmetic,
// and the share of what cuBLAS reaches there in a product of large square
// matrices:
//
//   mlp      784-4096-4096-10, batches of 1024
//   resnet   examples/fashion_mnist_resnet.textproto, batches of 512
//
// The types that end in "-u" are those without cuDNN, whose convolutions are
// unfolded; only the ResNet has any.
//
// A step is what a worker does between a pull and a push: parameters to the
// GPU, forward and backward pass, gradients to the host.
//
//   gpu_benchmark [SECONDS]    per model and arithmetic; default 5

#include <google/protobuf/text_format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/example_job.h"
#include "worker/model/registry.h"

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

// Multiplications of one example's forward pass. All but the first layer are
// done three times in a step: forward, and backward for kernel and input.
struct Work {
  double first = 0;
  double others = 0;

  double FlopsOfStep(int64_t batch) const {
    return 2.0 * static_cast<double>(batch) * (2 * first + 3 * others);
  }
};

constexpr Work kMlpWork = {784.0 * 4096, 4096.0 * 4096 + 4096.0 * 10};
// Convolutions: places x window x channels in x channels out. The blocks are of
// 28 x 28, 14 x 14 and 7 x 7 places; the latter two with a shortcut of 1 x 1.
constexpr Work kResnetWork = {
    784.0 * 9 * 1 * 16,
    2 * 784.0 * 9 * 16 * 16 +                            //
        196.0 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32) +  //
        49.0 * (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64) + 64.0 * 10};

struct Measured {
  double steps_per_second = 0;
  double flops = 0;
};

// Of a square product of `side`.
absl::StatusOr<double> FlopsOfProduct(Backend* backend, int64_t side,
                                      absl::Duration length) {
  DeviceBuffer a, b, c;
  for (DeviceBuffer* buffer : {&a, &b, &c}) {
    const absl::Status status = backend->Reserve(side * side, buffer);
    if (!status.ok()) return status;
  }
  const std::vector<float> ones(side * side, 1.0f);
  for (DeviceBuffer* buffer : {&a, &b}) {
    const auto uploaded = backend->Upload(ones, side, side, buffer);
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

absl::StatusOr<Measured> StepsOf(const proto::Model& config, int64_t batch_size,
                                 const Work& work, Backend* backend,
                                 absl::Duration length) {
  const auto model =
      CreateModel(config, {{28, 28}, 10}, 1, backend, ModelRegistry());
  if (!model.ok()) return model.status();
  const auto values = FirstValues((*model)->Variables(), 1);
  if (!values.ok()) return values.status();
  const std::vector<absl::Span<const float>> parameters(values->begin(),
                                                        values->end());
  const size_t size = batch_size * 784;
  auto inputs = backend->AllocateHost(size);
  if (!inputs.ok()) return inputs.status();
  for (size_t i = 0; i < size; ++i) {
    (*inputs)[i] = static_cast<float>(i * 7919 % 256) / 255;
  }
  std::vector<int32_t> labels(batch_size);
  // Two batches, in turn, of the same inputs.
  std::vector<int64_t> positions[2];
  for (int64_t i = 0; i < batch_size; ++i) {
    labels[i] = i % 10;
    positions[0].push_back(i);
    positions[1].push_back(batch_size + i);
  }
  const int warm_up = 5;
  absl::Time begin = absl::InfiniteFuture();
  for (int64_t step = 0;; ++step) {
    if (step == warm_up) begin = SteadyNow();
    Batch batch;
    batch.inputs = {inputs->get(), size};
    batch.labels = labels;
    batch.positions = positions[step % 2];
    batch.next_inputs = batch.inputs;
    batch.next_positions = positions[(step + 1) % 2];
    const auto result = (*model)->ComputeGradients(
        parameters, batch, [](int, absl::Span<const float>) {});
    if (!result.ok()) return result.status();
    const absl::Duration passed = SteadyNow() - begin;
    if (step < warm_up || passed < length) continue;
    Measured measured;
    measured.steps_per_second =
        static_cast<double>(step + 1 - warm_up) / absl::ToDoubleSeconds(passed);
    measured.flops = measured.steps_per_second * work.FlopsOfStep(batch_size);
    return measured;
  }
}

struct Arithmetic {
  const char* name;
  ProductOptions products;
};

absl::Status Run(absl::Duration length) {
  if (const auto gpu = MakeDeviceUnderTest(); !gpu.ok()) {
    return gpu.status();
  }
  proto::Model mlp;
  if (!google::protobuf::TextFormat::ParseFromString(
          kMlp, mlp.mutable_sequential())) {
    return absl::InternalError("the MLP cannot be read");
  }
  const auto resnet = LoadExample("fashion_mnist_resnet.textproto");
  if (!resnet.ok()) return resnet.status();
  bool named = false;
  for (const Arithmetic& arithmetic :
       {Arithmetic{"float32", {}}, Arithmetic{"float32-u", {.cudnn = false}},
        Arithmetic{"tf32", {.tf32 = true}},
        Arithmetic{"tf32-u", {.tf32 = true, .cudnn = false}},
        Arithmetic{"bfloat16", {.precision = Precision::kBfloat16}},
        Arithmetic{"float16", {.precision = Precision::kFloat16}}}) {
    const auto backend = MakeDeviceUnderTest(arithmetic.products);
    if (!backend.ok()) return backend.status();
    if (!std::exchange(named, true)) {
      std::printf("%s\n", (*backend)->Describe().core.c_str());
      std::printf("%-8s %-9s %10s %12s %10s %s\n", "model", "type", "steps/s",
                  "examples/s", "TFLOP/s", "of cuBLAS");
    }
    const auto peak = FlopsOfProduct(backend->get(), 8192, length);
    if (!peak.ok()) return peak.status();
    std::printf("%-8s %-9s %10s %12s %10.1f\n", "product", arithmetic.name, "",
                "", *peak / 1e12);
    const auto tell = [&](const char* name, const proto::Model& config,
                          int64_t batch_size, const Work& work) {
      const auto measured =
          StepsOf(config, batch_size, work, backend->get(), length);
      if (!measured.ok()) return measured.status();
      std::printf("%-8s %-9s %10.1f %12.0f %10.1f %8.0f%%\n", name,
                  arithmetic.name, measured->steps_per_second,
                  measured->steps_per_second * batch_size,
                  measured->flops / 1e12, 100 * measured->flops / *peak);
      return absl::OkStatus();
    };
    if (arithmetic.products.cudnn) {
      const absl::Status status = tell("mlp", mlp, 1024, kMlpWork);
      if (!status.ok()) return status;
    }
    const absl::Status status =
        tell("resnet", resnet->model(), 512, kResnetWork);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const absl::Status status = holdfast::Run(absl::Seconds(seconds));
  if (status.ok()) return 0;
  // Without a GPU there is nothing to measure.
  const bool none =
      absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
  std::printf("%s: %s\n", none ? "nothing was measured" : "failed",
              std::string(status.message()).c_str());
  return none ? 0 : 1;
}
