// SPDX-License-Identifier: Apache-2.0

// The models of the examples, and one with kernels of its own, on the device
// and the CPU: the losses of 100 steps of gradient descent on images, in
// batches like a worker's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/data/dataset.h"
#include "examples/cuda_model/gelu_classifier.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/example_job.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/input/batch_pipeline.h"
#include "worker/model/registry.h"

namespace holdfast {
namespace {

// Tolerated relative differences of losses, in the first 10 steps and after
// them. Roundings differ, and their effect grows from step to step, and
// suddenly when pooling chooses another value or a ReLU's input changes its
// sign. Between OpenBLAS's kernels for Haswell and for SkylakeX, which round
// differently, the losses of 100 steps differ by
//
//   4e-7                              softmax, mlp, gelu
//   9e-9, and 2e-2 after 10 steps     cnn
//   2e-5, and 2e-2 after 10 steps     resnet
struct Tolerance {
  double at_first;
  double later;
};
constexpr Tolerance kCalm = {1e-4, 1e-4};
constexpr Tolerance kTouchy = {1e-3, 1e-1};
// When factors are rounded to 8 bits, a difference in the last bit of a sum can
// become one in the last of these 8 bits.
constexpr Tolerance kRounded = {2e-2, 2e-1};

struct Curve {
  const char* job;
  float learning_rate;
  Tolerance tolerance;
  Precision precision = Precision::kFloat32;
  bool activations = false;
};

void PrintTo(const Curve& curve, std::ostream* out) {
  *out << curve.job
       << (curve.precision == Precision::kFloat32 ? "" : " in 16 bits")
       << (curve.activations ? " with activations" : "");
}

class ModelsTest : public ::testing::TestWithParam<Curve> {
 protected:
  void SetUp() override {
    const Precision precision = GetParam().precision;
    const bool activations = GetParam().activations;
    cpu_ = *CpuBackend::Create(
        {.precision = precision, .activations = activations});
    absl::StatusOr<std::unique_ptr<Backend>> device = MakeDeviceUnderTest(
        {.precision = precision, .activations = activations});
    if (absl::IsUnimplemented(device.status()) ||
        absl::IsFailedPrecondition(device.status())) {
      GTEST_SKIP() << "no case ran: " << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  // Long runs are made only where they are informative.
  const int steps_ = DeviceIsSlow() ? 3 : DeviceHasTheCpusBits() ? 10 : 100;
  const int batch_size_ = DeviceIsSlow() ? 4 : 32;

  // The mean loss of each step on `backend`.
  absl::StatusOr<std::vector<double>> Losses(const proto::Job& job,
                                             float learning_rate,
                                             Backend* backend) {
    const auto images = ExampleImages(Dataset::OptionsOf(job.data()));
    if (!images.ok()) return images.status();
    ModelRegistry registry;
    absl::Status status = registry.Register(
        "gelu_classifier", holdfast_examples::GeluClassifier::Create);
    if (!status.ok()) return status;
    const auto model = CreateModel(job.model(), (*images)->spec(), job.seed(),
                                   backend, registry);
    if (!model.ok()) return model.status();
    auto values = FirstValues((*model)->Variables(), job.seed());
    if (!values.ok()) return values.status();
    BatchPipeline::Options options;
    options.batch_size = batch_size_;
    options.seed = job.seed();
    options.allocate = [backend](int64_t size) {
      return backend->AllocateHost(size);
    };
    const auto batches = BatchPipeline::Start(images->get(), options);
    if (!batches.ok()) return batches.status();

    std::vector<double> losses;
    for (int step = 0; step < steps_; ++step) {
      const auto batch =
          (*batches)->Next(GlobalStep(step), 0, absl::InfiniteFuture());
      if (!batch.ok()) return batch.status();
      const std::vector<absl::Span<const float>> spans(values->begin(),
                                                       values->end());
      std::vector<std::vector<float>> gradients(values->size());
      const auto result = (*model)->ComputeGradients(
          spans, *batch, [&](int variable, absl::Span<const float> gradient) {
            gradients[variable].assign(gradient.begin(), gradient.end());
          });
      if (!result.ok()) return result.status();
      losses.push_back(result->loss_sum / batch_size_);
      // Moving averages are updated by descent, too: they do not affect
      // training.
      for (size_t v = 0; v < values->size(); ++v) {
        for (size_t i = 0; i < gradients[v].size(); ++i) {
          (*values)[v][i] -= learning_rate * gradients[v][i];
        }
      }
    }
    return losses;
  }

  std::unique_ptr<Backend> cpu_;
  std::unique_ptr<Backend> device_;
};

TEST_P(ModelsTest, LossCurveIsTheCpus) {
  const auto job = LoadExample(GetParam().job);
  ASSERT_TRUE(job.ok()) << job.status();
  const float rate = GetParam().learning_rate;
  const auto expected = Losses(*job, rate, cpu_.get());
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto made = Losses(*job, rate, device_.get());
  ASSERT_TRUE(made.ok()) << made.status();
  for (int i = 0; i < steps_; ++i) {
    const Tolerance& allowed = GetParam().tolerance;
    const double tolerance = DeviceHasTheCpusBits() ? 0
                             : i < 10               ? allowed.at_first
                                                    : allowed.later;
    EXPECT_NEAR((*made)[i], (*expected)[i], tolerance * (*expected)[i])
        << "step " << i;
  }
  if (steps_ >= 100) {
    EXPECT_LT(made->back(), 0.8 * made->front());
  }
  ++g_cases;
}

INSTANTIATE_TEST_SUITE_P(
    Examples, ModelsTest,
    ::testing::Values(Curve{"fashion_mnist_softmax.textproto", 0.05f, kCalm},
                      Curve{"fashion_mnist_mlp.textproto", 0.05f, kCalm},
                      Curve{"fashion_mnist_cnn.textproto", 0.02f, kTouchy},
                      Curve{"fashion_mnist_resnet.textproto", 0.02f, kTouchy},
                      Curve{"fashion_mnist_resnet.textproto", 0.02f, kRounded,
                            Precision::kBfloat16},
                      Curve{"fashion_mnist_resnet.textproto", 0.02f, kRounded,
                            Precision::kBfloat16, /*activations=*/true},
                      Curve{"cuda_model/fashion_mnist_gelu.textproto", 0.05f,
                            kCalm}));

}  // namespace
}  // namespace holdfast
