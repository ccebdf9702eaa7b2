// SPDX-License-Identifier: Apache-2.0
#include "worker/model/gradient_delivery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "common/tensor/norm.h"
#include "common/trace/testing/trace_testing.h"
#include "common/trace/trace.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/testing/host_device.h"
#include "worker/backend/testing/test_values.h"
#include "worker/model/network_model.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tensors = std::vector<std::vector<float>>;

// Only a broken test waits for so long.
constexpr absl::Duration kLimit = absl::Minutes(1);

// The fake device, which must not have been misused at its end.
struct Device : HostDevice {
  using HostDevice::HostDevice;
  ~Device() {
    backend.reset();
    EXPECT_EQ(misuse, absl::OkStatus());
  }
};

// Gradients of several sizes: 2 x RandomValues.
class Gradients {
 public:
  static constexpr int kCount = 12;

  Gradients(Backend* backend, uint32_t key) : backend_(backend) {
    for (int i = 0; i < kCount; ++i) {
      host_.push_back(RandomValues(1 + 37 * i, key + i));
      expected_.push_back(host_.back());
      for (float& value : expected_.back()) value *= 2;
    }
  }

  // Computes gradient i, and adds it.
  absl::Status Add(GradientDelivery* delivery, int i) {
    const int64_t size = static_cast<int64_t>(host_[i].size());
    const auto x = backend_->Upload(host_[i], 1, size, &staging_[i]);
    if (!x.ok()) return x.status();
    const auto made =
        backend_->ReserveFor(delivery->Memory(i), 1, size, &made_[i]);
    if (!made.ok()) return made.status();
    backend_->Scale(2, *x, *made);
    return delivery->Add(i, *made);
  }
  const Tensors& expected() const { return expected_; }

 private:
  Backend* const backend_;
  Tensors host_, expected_;
  DeviceBuffer staging_[kCount], made_[kCount];
};

absl::StatusOr<bool> Yes() { return true; }

// A sink for gradients that must not come.
constexpr auto kRefuse = [](int variable, absl::Span<const float>) {
  ADD_FAILURE() << "gradient " << variable;
};

TEST(GradientDeliveryTest, EveryOrderOfTheDeviceGivesTheSameGradients) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Device device({.seed = seed});
    GradientDelivery delivery(device.backend.get(), Gradients::kCount);
    std::set<std::thread::id> threads;
    for (int batch = 0; batch < 3; ++batch) {
      Gradients gradients(device.backend.get(), 100 * batch);
      Tensors made;
      const auto take = [&](int variable, absl::Span<const float> gradient) {
        EXPECT_EQ(variable, static_cast<int>(made.size()));
        made.emplace_back(gradient.begin(), gradient.end());
        threads.insert(std::this_thread::get_id());
      };
      delivery.Begin(take, Yes);
      for (int i = 0; i < Gradients::kCount; ++i) {
        ASSERT_EQ(gradients.Add(&delivery, i), absl::OkStatus());
      }
      ASSERT_EQ(delivery.Finish(/*complete=*/true), absl::OkStatus());
      EXPECT_EQ(made, gradients.expected());
    }
    // One thread lives from batch to batch.
    EXPECT_EQ(threads.size(), 1);
    EXPECT_EQ(threads.count(std::this_thread::get_id()), 0);
  }
}

TEST(GradientDeliveryTest, GradientsAreAddedWhileTheSinkIsBusy) {
  Device device;
  GradientDelivery delivery(device.backend.get(), Gradients::kCount);
  Gradients gradients(device.backend.get(), 1);
  absl::Notification added;
  std::vector<int> made;
  const auto take = [&](int variable, absl::Span<const float>) {
    EXPECT_TRUE(added.WaitForNotificationWithTimeout(kLimit));
    made.push_back(variable);
  };
  delivery.Begin(take, Yes);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(gradients.Add(&delivery, i), absl::OkStatus());
  }
  added.Notify();
  ASSERT_EQ(delivery.Finish(/*complete=*/true), absl::OkStatus());
  EXPECT_THAT(made, ElementsAre(0, 1, 2));
}

TEST(GradientDeliveryTest, NothingLeavesBeforeTheDecision) {
  for (const bool decision : {true, false}) {
    Device device({.lazy = true});
    GradientDelivery delivery(device.backend.get(), Gradients::kCount);
    Gradients gradients(device.backend.get(), 1);
    absl::Notification added;
    std::vector<int> made;
    const auto take = [&](int variable, absl::Span<const float>) {
      made.push_back(variable);
    };
    const auto decide = [&]() -> absl::StatusOr<bool> {
      EXPECT_TRUE(added.WaitForNotificationWithTimeout(kLimit));
      EXPECT_THAT(made, IsEmpty());
      return decision;
    };
    delivery.Begin(take, decide);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(gradients.Add(&delivery, i), absl::OkStatus());
    }
    added.Notify();
    ASSERT_EQ(delivery.Finish(/*complete=*/true), absl::OkStatus());
    EXPECT_EQ(made, decision ? std::vector<int>({0, 1}) : std::vector<int>());
    // Dropped gradients have arrived, too.
    EXPECT_TRUE(device.runtime->IsIdle(StreamId::kCopyOut));
  }
}

TEST(GradientDeliveryTest, AnErrorOfTheDecisionIsReturned) {
  Device device;
  GradientDelivery delivery(device.backend.get(), Gradients::kCount);
  Gradients gradients(device.backend.get(), 1);
  const auto decide = []() -> absl::StatusOr<bool> {
    return absl::UnavailableError("no loss");
  };
  delivery.Begin(kRefuse, decide);
  // Also ends the pass of the caller, if it comes early enough.
  gradients.Add(&delivery, 0).IgnoreError();
  EXPECT_EQ(delivery.Finish(/*complete=*/true),
            absl::UnavailableError("no loss"));
  // The next batch is another one.
  std::vector<int> made;
  const auto take = [&](int variable, absl::Span<const float>) {
    made.push_back(variable);
  };
  delivery.Begin(take, Yes);
  ASSERT_EQ(gradients.Add(&delivery, 1), absl::OkStatus());
  EXPECT_EQ(delivery.Finish(/*complete=*/true), absl::OkStatus());
  EXPECT_THAT(made, ElementsAre(1));
}

TEST(GradientDeliveryTest, AnErrorOfTheDeviceIsReturned) {
  for (const bool complete : {true, false}) {
    Device device;
    GradientDelivery delivery(device.backend.get(), Gradients::kCount);
    Gradients gradients(device.backend.get(), 1);
    absl::Notification failed;
    const auto decide = [&]() -> absl::StatusOr<bool> {
      EXPECT_TRUE(failed.WaitForNotificationWithTimeout(kLimit));
      return true;
    };
    delivery.Begin(kRefuse, decide);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(gradients.Add(&delivery, i), absl::OkStatus());
    }
    device.runtime->FailWith(absl::InternalError("on fire"));
    failed.Notify();
    EXPECT_EQ(delivery.Finish(complete), absl::InternalError("on fire"));
    // It must work again to be destroyed in order.
    device.runtime->FailWith(absl::OkStatus());
  }
}

TEST(GradientDeliveryTest, OnTheCpuTheCallerDelivers) {
  const auto cpu = *CpuBackend::Create({});
  GradientDelivery delivery(cpu.get(), Gradients::kCount);
  Gradients gradients(cpu.get(), 1);
  std::vector<float> memory(gradients.expected()[1].size());
  Tensors made;
  const auto take = [&](int variable, absl::Span<const float> gradient) {
    EXPECT_EQ(gradient.data() == memory.data(), variable == 1);
    made.emplace_back(gradient.begin(), gradient.end());
  };
  const auto memory_of = [&](int variable) {
    return variable == 1 ? absl::MakeSpan(memory) : absl::Span<float>();
  };
  const auto decide = []() -> absl::StatusOr<bool> {
    ADD_FAILURE() << "nothing is to be waited for";
    return false;
  };
  delivery.Begin(GradientSink(take, memory_of), decide);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(gradients.Add(&delivery, i), absl::OkStatus());
    ASSERT_EQ(made.size(), static_cast<size_t>(i + 1));
    EXPECT_EQ(made.back(), gradients.expected()[i]);
  }
  EXPECT_EQ(delivery.Finish(/*complete=*/true), absl::OkStatus());
}

// The facts of the gradients 2 x values, which `backend` computes.
std::vector<std::optional<double>> FactsOf(GradientDelivery* delivery,
                                           Backend* backend,
                                           const Tensors& values) {
  std::vector<std::optional<double>> made;
  const auto take = [&](int, absl::Span<const float> gradient,
                        const GradientFacts& facts) {
    made.push_back(facts.sum_of_squares);
    if (facts.sum_of_squares.has_value() && AllFinite(gradient)) {
      // The fake device adds in the CPU's order.
      EXPECT_EQ(*facts.sum_of_squares, SumOfSquares(gradient));
    }
  };
  delivery->Begin(take, Yes);
  std::vector<DeviceBuffer> staging(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto x = backend->Upload(values[i], 1, values[i].size(), &staging[i]);
    EXPECT_TRUE(x.ok()) << x.status();
    const Matrix gradient = staging[i].View(1, values[i].size());
    backend->Scale(2, gradient, gradient);
    EXPECT_EQ(delivery->Add(static_cast<int>(i), gradient), absl::OkStatus());
  }
  EXPECT_EQ(delivery->Finish(/*complete=*/true), absl::OkStatus());
  return made;
}

TEST(GradientDeliveryTest, LargeGradientsComeWithFacts) {
  constexpr int64_t kMin = GradientDelivery::kMinForFacts;
  Tensors values = {RandomValues(kMin - 1, 1), RandomValues(kMin, 2),
                    RandomValues(kMin + 5, 3), RandomValues(kMin + 5, 4),
                    RandomValues(10, 5)};
  values[2].back() = std::numeric_limits<float>::quiet_NaN();
  values[3].front() = -std::numeric_limits<float>::infinity();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Device device({.seed = seed});
    Backend* const backend = device.backend.get();
    GradientDelivery delivery(backend, static_cast<int64_t>(values.size()));
    // The second batch uses the memory of the first.
    for (int batch = 0; batch < 2; ++batch) {
      const auto facts = FactsOf(&delivery, backend, values);
      ASSERT_EQ(facts.size(), 5u);
      EXPECT_EQ(facts[0], std::nullopt);
      ASSERT_TRUE(facts[1].has_value());
      EXPECT_TRUE(std::isfinite(*facts[1]));
      ASSERT_TRUE(facts[2].has_value());
      EXPECT_TRUE(std::isnan(*facts[2]));
      ASSERT_TRUE(facts[3].has_value());
      EXPECT_TRUE(std::isinf(*facts[3]));
      EXPECT_EQ(facts[4], std::nullopt);
    }
  }
}

// Its outputs are its inputs, and the gradient of each of its variables is the
// variable itself, whatever the loss.
class EchoNetwork final : public Network {
 public:
  static constexpr int kVariables = 3;
  static constexpr int kSize = 100;

  // Calls `after` after the sink has taken each gradient.
  EchoNetwork(Backend* backend, std::function<void(int variable)> after)
      : backend_(backend), after_(std::move(after)) {
    for (int v = 0; v < kVariables; ++v) {
      proto::Variable variable;
      variable.set_name(std::string(1, static_cast<char>('a' + v)));
      variable.add_shape(kSize);
      variables_.push_back(std::move(variable));
    }
  }

  const std::vector<proto::Variable>& variables() const override {
    return variables_;
  }
  const std::vector<int64_t>& output_shape() const override { return shape_; }
  std::string OutputName() const override { return "echo"; }
  absl::StatusOr<ConstMatrix> Forward(const Pass&,
                                      absl::Span<const ConstMatrix>,
                                      ConstMatrix x, const Batch&) override {
    return x;
  }
  absl::Status Backward(absl::Span<const ConstMatrix> parameters, Matrix,
                        Layer::GradientSink sink) override {
    for (int v = 0; v < kVariables; ++v) {
      const auto made =
          backend_->ReserveFor(sink.Memory(v), 1, kSize, &made_[v]);
      if (!made.ok()) return made.status();
      backend_->Copy(parameters[v], *made);
      const absl::Status status = sink(v, *made);
      if (!status.ok()) return status;
      after_(v);
    }
    return absl::OkStatus();
  }

 private:
  Backend* const backend_;
  const std::function<void(int variable)> after_;
  std::vector<proto::Variable> variables_;
  const std::vector<int64_t> shape_ = {3};
  DeviceBuffer made_[kVariables];
};

// A model of an EchoNetwork.
struct Echo {
  Echo(Backend* backend, std::function<void(int variable)> after) {
    proto::Loss loss;
    loss.mutable_softmax_cross_entropy();
    auto made = NetworkModel::Create(
        std::make_unique<EchoNetwork>(backend, std::move(after)),
        *Loss::Create(loss), {{3}, 3}, backend);
    EXPECT_TRUE(made.ok()) << made.status();
    model = *std::move(made);
    for (int v = 0; v < EchoNetwork::kVariables; ++v) {
      parameters.push_back(RandomValues(EchoNetwork::kSize, v));
    }
  }
  absl::StatusOr<BatchResult> Compute(const std::vector<float>& inputs,
                                      GradientSink sink) {
    const std::vector<absl::Span<const float>> spans(parameters.begin(),
                                                     parameters.end());
    const std::vector<int32_t> labels = {0, 1};
    return model->ComputeGradients(spans, {inputs, labels}, sink);
  }

  std::unique_ptr<NetworkModel> model;
  Tensors parameters;
};

TEST(GradientDeliveryTest, AModelEnqueuesItsPassWhileTheSinkIsBusy) {
  Device device;
  absl::Notification enqueued;
  Echo echo(device.backend.get(), [&](int variable) {
    if (variable == EchoNetwork::kVariables - 1) enqueued.Notify();
  });
  Tensors made;
  const auto result = echo.Compute(
      RandomValues(6, 9), [&](int, absl::Span<const float> gradient) {
        EXPECT_TRUE(enqueued.WaitForNotificationWithTimeout(kLimit));
        made.emplace_back(gradient.begin(), gradient.end());
      });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->finite);
  EXPECT_EQ(made, echo.parameters);
}

TEST(GradientDeliveryTest, AnErrorInMidPassLeavesTheSinkAlone) {
  Device device;
  absl::Notification delivered;
  Echo echo(device.backend.get(), [&](int variable) {
    if (variable != 0) return;
    EXPECT_TRUE(delivered.WaitForNotificationWithTimeout(kLimit));
    device.runtime->FailWith(absl::InternalError("on fire"));
  });
  std::vector<int> made;
  const absl::Status status =
      echo.Compute(RandomValues(6, 9),
                   [&](int variable, absl::Span<const float>) {
                     made.push_back(variable);
                     delivered.Notify();
                   })
          .status();
  EXPECT_EQ(status, absl::InternalError("on fire"));
  EXPECT_THAT(made, ElementsAre(0));
  device.runtime->FailWith(absl::OkStatus());
}

TEST(GradientDeliveryTest, ALossThatIsNotFiniteGivesNothing) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Device device({.seed = seed});
    Echo echo(device.backend.get(), [](int) {});
    for (const bool finite : {true, false, true}) {
      std::vector<float> inputs = RandomValues(6, 9);
      if (!finite) inputs[4] = std::numeric_limits<float>::infinity();
      Tensors made;
      const auto result =
          echo.Compute(inputs, [&](int, absl::Span<const float> gradient) {
            made.emplace_back(gradient.begin(), gradient.end());
          });
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->finite, finite);
      EXPECT_EQ(made, finite ? echo.parameters : Tensors());
    }
  }
}

TEST(GradientDeliveryTest, ATraceTellsWhichThreadWaitsForWhat) {
  Tracer tracer({});
  {
    Device device;
    device.backend->SetTracer(&tracer);
    Echo echo(device.backend.get(), [](int) {});
    tracer.NameThread("trainer");
    ASSERT_TRUE(
        echo.Compute(RandomValues(6, 9), [](int, absl::Span<const float>) {})
            .ok());
  }
  std::vector<std::string> trainer, gradients;
  for (const ReadTrace::Event& event : ReadTrace(tracer.ToJson()).events) {
    if (event.track == "trainer") trainer.push_back(event.name);
    if (event.track == "thread gradients") gradients.push_back(event.name);
  }
  EXPECT_THAT(trainer,
              ElementsAre("forward", "backward", "the delivery of gradients",
                          "copies to the device"));
  EXPECT_THAT(gradients, ElementsAre("the loss", "a gradient from the device",
                                     "a gradient from the device",
                                     "a gradient from the device"));
}

}  // namespace
}  // namespace holdfast
