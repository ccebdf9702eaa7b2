// SPDX-License-Identifier: Apache-2.0

// Models on the fake device: they get the CPU's bits in every order of its
// work, and neither wait nor take memory without need.

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/process/host_memory.h"
#include "common/trace/testing/trace_testing.h"
#include "common/trace/trace.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"
#include "worker/backend/stream/testing/host_device.h"
#include "worker/backend/testing/test_values.h"
#include "worker/model/registry.h"

namespace holdfast {
namespace {

// A model, its data, and what it computes in some steps.
class Training {
 public:
  explicit Training(const std::string& config, std::vector<int64_t> shape,
                    int num_classes)
      : shape_(std::move(shape)), num_classes_(num_classes) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        config, config_.mutable_sequential()));
  }

  // All gradients and losses of some steps of gradient descent, with an
  // evaluation after each, on batches of two sizes.
  std::vector<std::vector<float>> Run(Backend* backend, int steps = 3) const {
    std::vector<std::vector<float>> made;
    auto model = CreateModel(config_, {shape_, num_classes_}, 7, backend,
                             ModelRegistry());
    if (!model.ok()) {
      ADD_FAILURE() << model.status();
      return made;
    }
    int64_t example_size = 1;
    for (const int64_t dimension : shape_) example_size *= dimension;
    const std::vector<proto::Variable> variables = (*model)->Variables();
    std::vector<std::vector<float>> parameters;
    for (const proto::Variable& variable : variables) {
      int64_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      parameters.push_back(RandomValues(size, 10 + parameters.size()));
    }
    for (int step = 0; step < steps; ++step) {
      const int64_t examples = step % 2 == 1 ? 9 : 5;
      const std::vector<float> inputs =
          RandomValues(examples * example_size, 1000 + step);
      std::vector<int32_t> labels(examples);
      std::vector<int64_t> positions(examples);
      for (int64_t i = 0; i < examples; ++i) {
        labels[i] = (i * 7 + step) % num_classes_;
        positions[i] = 100 * step + i;
      }
      const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                       parameters.end());
      std::vector<std::vector<float>> gradients(parameters.size());
      const auto result = (*model)->ComputeGradients(
          spans, {inputs, labels, positions},
          [&](int variable, absl::Span<const float> gradient) {
            gradients[variable].assign(gradient.begin(), gradient.end());
          });
      if (!result.ok()) {
        ADD_FAILURE() << result.status();
        return made;
      }
      made.push_back({static_cast<float>(result->loss_sum)});
      for (size_t v = 0; v < parameters.size(); ++v) {
        for (size_t i = 0; i < gradients[v].size(); ++i) {
          parameters[v][i] -= 0.1f * gradients[v][i];
        }
        made.push_back(gradients[v]);
      }
      const auto evaluated = (*model)->Evaluate(spans, {inputs, labels});
      if (!evaluated.ok()) {
        ADD_FAILURE() << evaluated.status();
        return made;
      }
      made.push_back({static_cast<float>(evaluated->loss_sum)});
    }
    return made;
  }

 private:
  proto::Model config_;
  const std::vector<int64_t> shape_;
  const int num_classes_;
};

void ExpectTheCpusBits(const Training& training, int seeds,
                       CpuBackend::Options arithmetic = {}) {
  const auto cpu = *CpuBackend::Create(arithmetic);
  const auto expected = training.Run(cpu.get());
  ASSERT_FALSE(expected.empty());
  for (int seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = static_cast<uint64_t>(seed)}, nullptr,
                      arithmetic);
    EXPECT_EQ(device.backend->RoundsActivations(), cpu->RoundsActivations());
    const auto made = training.Run(device.backend.get());
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) {
      ASSERT_TRUE(SameBits(made[i], expected[i])) << "result " << i;
    }
    device.backend.reset();
    ASSERT_EQ(device.misuse, absl::OkStatus());
  }
}

TEST(StreamModelsTest, AMultilayerPerceptronGetsTheCpusBits) {
  ExpectTheCpusBits(Training(R"pb(
                               layers { dense { units: 12 } }
                               layers { relu {} }
                               layers { dropout { rate: 0.25 } }
                               layers { dense { units: 9 } }
                               layers { tanh {} }
                               layers { dense { units: 8 } }
                               layers { sigmoid {} }
                               layers { dropout { rate: 0.5 } }
                               layers { dense { units: 4 } }
                               loss { softmax_cross_entropy {} }
                             )pb",
                             {6}, 4),
                    100);
}

TEST(StreamModelsTest, AConvolutionalNetworkGetsTheCpusBits) {
  ExpectTheCpusBits(
      Training(R"pb(
                 layers { conv2d { filters: 4 kernel_size: 3 padding: SAME } }
                 layers { batch_norm {} }
                 layers { relu {} }
                 layers { max_pool2d { size: 2 } }
                 layers {
                   residual {
                     layers { layer_norm {} }
                     layers { conv2d { filters: 4 kernel_size: 1 groups: 2 } }
                   }
                 }
                 layers { average_pool2d { size: 2 stride: 1 } }
                 layers { flatten {} }
                 layers { dense { units: 3 } }
                 loss { mean_squared_error {} }
               )pb",
               {6, 6, 2}, 3),
      30);
}

TEST(StreamModelsTest, RoundedActivationsGetTheCpusBits) {
  ExpectTheCpusBits(
      Training(
          R"pb(
            layers { conv2d { filters: 4 kernel_size: 3 use_bias: false } }
            layers { batch_norm {} }
            layers { relu {} }
            layers {
              residual {
                layers { conv2d { filters: 4 kernel_size: 1 use_bias: false } }
                layers { batch_norm {} }
              }
            }
            layers { relu {} }
            layers { conv2d { filters: 3 kernel_size: 2 use_bias: false } }
            layers { batch_norm {} }
            layers { flatten {} }
            layers { dense { units: 3 } }
            loss { softmax_cross_entropy {} }
          )pb",
          {5, 5, 2}, 3),
      10, {.precision = Precision::kBfloat16, .activations = true});
}

TEST(StreamModelsTest, TakesNoMemoryInTheSteadyState) {
  const Training training(R"pb(
                            layers { dense { units: 12 } }
                            layers { relu {} }
                            layers { dropout { rate: 0.25 } }
                            layers { dense { units: 4 } }
                            loss { sigmoid_cross_entropy {} }
                          )pb",
                          {6}, 4);
  HostDevice a_few_steps, more_steps;
  training.Run(a_few_steps.backend.get(), 4);
  training.Run(more_steps.backend.get(), 8);
  EXPECT_EQ(more_steps.runtime->allocations(),
            a_few_steps.runtime->allocations());
}

// Runs steps, every second of which has a loss that is not finite. Returns all
// gradients.
std::vector<std::vector<float>> TrainWithNans(Backend* backend) {
  proto::Model config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { dense { units: 12 } }
           layers { tanh {} }
           layers { dense { units: 4 } }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  auto model = CreateModel(config, {{6}, 4}, 7, backend, ModelRegistry());
  EXPECT_TRUE(model.ok()) << model.status();
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0};
  const std::vector<int64_t> positions = {0, 1, 2, 3, 4};
  std::vector<std::vector<float>> made;
  for (int step = 0; step < 6; ++step) {
    std::vector<float> inputs = RandomValues(30, step);
    if (step % 2 == 1) inputs[7] = NAN;
    const std::vector<std::vector<float>> parameters = {
        RandomValues(72, 1), RandomValues(12, 2), RandomValues(48, 3),
        RandomValues(4, 4)};
    const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                     parameters.end());
    const size_t before = made.size();
    const auto result = (*model)->ComputeGradients(
        spans, {inputs, labels, positions},
        [&](int, absl::Span<const float> gradient) {
          made.emplace_back(gradient.begin(), gradient.end());
        });
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->finite, step % 2 == 0);
    EXPECT_EQ(made.size() - before, step % 2 == 0 ? 4 : 0);
  }
  return made;
}

TEST(StreamModelsTest, ALossThatIsNotFiniteGivesNothing) {
  const auto cpu = *CpuBackend::Create({});
  const auto expected = TrainWithNans(cpu.get());
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = seed});
    const auto made = TrainWithNans(device.backend.get());
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) {
      ASSERT_TRUE(SameBits(made[i], expected[i])) << "gradient " << i;
    }
    device.backend.reset();
    EXPECT_EQ(device.misuse, absl::OkStatus());
  }
}

// Another thread waits for the loss.
TEST(StreamModelsTest, TheBackwardPassDoesNotWaitForTheLoss) {
  Tracer tracer({});
  HostDevice device({.lazy = true});
  device.backend->SetTracer(&tracer);
  TrainWithNans(device.backend.get());
  device.backend.reset();
  std::vector<ReadTrace::Event> backward, waits;
  for (const ReadTrace::Event& event : ReadTrace(tracer.ToJson()).events) {
    if (event.name == "backward") backward.push_back(event);
    if (event.name == "the loss") waits.push_back(event);
  }
  ASSERT_EQ(backward.size(), 6);
  ASSERT_EQ(waits.size(), 6);
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(waits[step].track, "thread gradients");
    EXPECT_NE(backward[step].track, waits[step].track);
  }
}

// The parameters' memory may be freed as soon as a call has returned, whether
// the results depend on all uploads or not: the host waits for the uploads as
// well.
TEST(StreamModelsTest, NothingReadsParametersWhenAStepIsOver) {
  proto::Model config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { dense { units: 12 } }
           layers { tanh {} }
           layers { dense { units: 4 } }
           layers { batch_norm {} }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  std::vector<float> inputs = RandomValues(30, 1);
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0};
  const std::vector<int64_t> positions = {0, 1, 2, 3, 4};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    HostRuntime::Options options;
    options.seed = seed;
    if (seed % 2 == 1) options.ignored_synchronize = StreamId::kCopyOut;
    HostDevice device(options);
    HostMemory* const memory = device.backend->host_memory();
    auto model =
        CreateModel(config, {{6}, 4}, 7, device.backend.get(), ModelRegistry());
    ASSERT_TRUE(model.ok()) << model.status();
    const auto call = [&](const auto& calls_it) {
      std::vector<HostBuffer> buffers;
      std::vector<absl::Span<const float>> spans;
      for (const proto::Variable& variable : (*model)->Variables()) {
        int64_t size = 1;
        for (const int64_t dimension : variable.shape()) size *= dimension;
        buffers.push_back(memory->Allocate(size));
        std::fill_n(buffers.back().get(), size, 0.5f);
        spans.push_back({buffers.back().get(), static_cast<size_t>(size)});
      }
      const absl::StatusOr<BatchResult> result = calls_it(spans);
      ASSERT_TRUE(result.ok()) << result.status();
    };
    const auto compute = [&](absl::Span<const absl::Span<const float>> spans) {
      return (*model)->ComputeGradients(spans, {inputs, labels, positions},
                                        [](int, absl::Span<const float>) {});
    };
    call(compute);
    call([&](const auto& spans) {
      return (*model)->Evaluate(spans, {inputs, labels});
    });
    const float input = std::exchange(inputs[0], NAN);
    call(compute);
    inputs[0] = input;
    ASSERT_EQ(device.misuse, absl::OkStatus());
  }
}

// Runs steps of a model on batches in pinned memory, each of which names the
// next batch; sometimes another batch comes. The memory of the named batch may
// be overwritten as soon as the step is over. Returns all gradients.
std::vector<std::vector<float>> TrainWithNextBatches(Backend* backend) {
  constexpr int kSteps = 9;
  constexpr int64_t kExamples = 5;
  constexpr int64_t kSize = kExamples * 6;
  proto::Model config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { dense { units: 12 } }
           layers { tanh {} }
           layers { dropout { rate: 0.25 } }
           layers { dense { units: 4 } }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  auto model = CreateModel(config, {{6}, 4}, 7, backend, ModelRegistry());
  EXPECT_TRUE(model.ok()) << model.status();
  const std::vector<std::vector<float>> parameters = {
      RandomValues(72, 1), RandomValues(12, 2), RandomValues(48, 3),
      RandomValues(4, 4)};
  const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                   parameters.end());
  const std::vector<int32_t> labels = {0, 1, 2, 3, 0};
  std::vector<std::vector<int64_t>> positions(kSteps + 1);
  for (int step = 0; step <= kSteps; ++step) {
    for (int64_t i = 0; i < kExamples; ++i) {
      positions[step].push_back(kExamples * step + i);
    }
  }
  std::vector<HostBuffer> slots;
  for (int i = 0; i < 2; ++i) slots.push_back(*backend->AllocateHost(kSize));
  const auto fill = [&](int slot, int step) {
    const std::vector<float> values = RandomValues(kSize, 100 + step);
    std::copy(values.begin(), values.end(), slots[slot].get());
  };

  std::vector<std::vector<float>> made;
  fill(0, 0);
  for (int step = 0; step < kSteps; ++step) {
    const int slot = step % 2;
    fill(1 - slot, step + 1);
    Batch batch;
    batch.inputs = {slots[slot].get(), kSize};
    batch.labels = labels;
    batch.positions = positions[step];
    batch.next_inputs = {slots[1 - slot].get(), kSize};
    batch.next_positions = positions[step + 1];
    // Another batch comes.
    const bool wrong = step % 3 == 2;
    if (wrong) {
      fill(1 - slot, 1000);
      batch.next_positions = positions[0];
    }
    const auto result = (*model)->ComputeGradients(
        spans, batch, [&](int, absl::Span<const float> gradient) {
          made.emplace_back(gradient.begin(), gradient.end());
        });
    EXPECT_TRUE(result.ok()) << result.status();
    std::fill_n(slots[slot].get(), kSize, NAN);
    // A device has copied it already, if it was named.
    const bool brought = dynamic_cast<StreamBackend*>(backend) != nullptr;
    if (brought && !wrong) {
      std::fill_n(slots[1 - slot].get(), kSize, NAN);
    } else {
      fill(1 - slot, step + 1);
    }
  }
  return made;
}

TEST(StreamModelsTest, TheNextBatchIsBroughtWhileGradientsAreComputed) {
  const auto cpu = *CpuBackend::Create({});
  const auto expected = TrainWithNextBatches(cpu.get());
  ASSERT_EQ(expected.size(), 36u);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = seed});
    const auto made = TrainWithNextBatches(device.backend.get());
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) {
      ASSERT_TRUE(SameBits(made[i], expected[i])) << "gradient " << i;
    }
    device.backend.reset();
    EXPECT_EQ(device.misuse, absl::OkStatus());
  }
}

}  // namespace
}  // namespace holdfast
