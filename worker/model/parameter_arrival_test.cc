// SPDX-License-Identifier: Apache-2.0

// Forward passes that begin while parameters are still arriving.
#include "worker/model/parameter_arrival.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"
#include "worker/backend/testing/test_values.h"
#include "worker/model/registry.h"
#include "worker/model/replicated.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Variables 0 and 1 are those of the first layer, 2 to 5 those of the block, 6
// and 7 those of the last layer.
constexpr char kModel[] = R"pb(
  sequential {
    layers { dense { units: 6 } }
    layers { tanh {} }
    layers {
      residual {
        layers { dense { units: 5 } }
        shortcut { dense { units: 5 } }
      }
    }
    layers { relu {} }
    layers { dense { units: 4 } }
    loss { softmax_cross_entropy {} }
  }
)pb";
constexpr size_t kVariables = 8;
constexpr int64_t kInputs = 3;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Parameters that arrive when they are awaited, in memory that is allocated
// then.
class FakeArrival final : public ParameterArrival {
 public:
  // A test's orders.
  std::optional<size_t> fails_at;
  std::function<void(size_t variable)> on_arrival;

  std::vector<std::vector<float>> values;
  std::vector<size_t> awaited;
  // The model's argument.
  std::vector<absl::Span<const float>> spans;

  // If `memory` is null, the parameters arrive in ordinary memory.
  explicit FakeArrival(const Model& model, HostMemory* memory = nullptr)
      : spans(kVariables), memory_(memory), buffers_(kVariables) {
    for (const proto::Variable& variable : model.Variables()) {
      int64_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      values.push_back(RandomValues(size, 50 + values.size()));
    }
  }

  absl::Status Await(size_t variable) override {
    awaited.push_back(variable);
    if (variable == fails_at) return absl::AbortedError("lost");
    Arrive(variable);
    if (on_arrival) on_arrival(variable);
    return absl::OkStatus();
  }

  void ArriveAll() {
    for (size_t i = 0; i < kVariables; ++i) Arrive(i);
  }

  // The arrived values of a variable.
  float* of(size_t variable) { return buffers_[variable].get(); }

 private:
  void Arrive(size_t variable) {
    const std::vector<float>& from = values[variable];
    buffers_[variable] =
        memory_ != nullptr
            ? memory_->Allocate(from.size())
            : HostBuffer(new float[from.size()], [](float* p) { delete[] p; });
    std::copy(from.begin(), from.end(), buffers_[variable].get());
    spans[variable] = {buffers_[variable].get(), from.size()};
  }

  HostMemory* const memory_;
  std::vector<HostBuffer> buffers_;
};

using Gradients = std::map<int, std::vector<float>>;

class ParameterArrivalTest : public ::testing::Test {
 protected:
  ParameterArrivalTest() : inputs_(RandomValues(7 * kInputs, 1)) {
    for (int i = 0; i < 7; ++i) labels_.push_back(i % 4);
  }
  ~ParameterArrivalTest() override {
    model_.reset();
    for (std::unique_ptr<Backend>& backend : backends_) backend.reset();
    EXPECT_EQ(misuse_, absl::OkStatus());
  }

  void UseCpu() { backends_.push_back(*CpuBackend::Create({})); }
  // Fake devices, which detect if memory that they read is freed or changed.
  void UseStandIns(int count, uint64_t seed) {
    const auto machine = std::make_shared<HostRuntime::Machine>();
    const auto pinned = std::make_shared<PinnedRanges>();
    for (int i = 0; i < count; ++i) {
      HostRuntime::Options options;
      options.seed = seed + 1000 * i;
      options.machine = machine;
      options.misuse = &misuse_;
      cpus_.push_back(*CpuBackend::Create({}));
      auto runtime = std::make_unique<HostRuntime>(options);
      auto math = std::make_unique<HostMath>(runtime.get(), cpus_.back().get());
      backends_.push_back(std::make_unique<StreamBackend>(
          std::move(runtime), std::move(math),
          StreamBackend::Options{"host", {}, pinned}));
    }
  }
  void MakeModel() {
    proto::Model config;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kModel, &config));
    std::vector<Backend*> backends;
    for (const auto& backend : backends_) backends.push_back(backend.get());
    auto model = CreateReplicatedModel(config, {{kInputs}, 4}, 7, backends,
                                       ModelRegistry());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    ASSERT_EQ(model_->Variables().size(), kVariables);
    EXPECT_TRUE(model_->AwaitsParameters());
  }
  HostMemory* host_memory() { return backends_[0]->host_memory(); }

  // Computes the gradients while the parameters arrive or, if `early` is false,
  // when all of them are there.
  absl::StatusOr<Gradients> Compute(FakeArrival* arrival, bool early) {
    Batch batch = {inputs_, labels_};
    if (early) {
      batch.arrival = arrival;
    } else {
      arrival->ArriveAll();
    }
    Gradients gradients;
    const auto result = model_->ComputeGradients(
        arrival->spans, batch,
        [&](int variable, absl::Span<const float> gradient) {
          gradients[variable].assign(gradient.begin(), gradient.end());
        });
    if (!result.ok()) return result.status();
    EXPECT_TRUE(result->finite);
    return gradients;
  }

  Gradients Expected() {
    FakeArrival arrival(*model_);
    const auto gradients = Compute(&arrival, /*early=*/false);
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    EXPECT_EQ(gradients->size(), kVariables);
    return *gradients;
  }

  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
  absl::Status misuse_;
  std::vector<std::unique_ptr<Backend>> cpus_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::unique_ptr<Model> model_;
};

TEST_F(ParameterArrivalTest,
       ALayerComputesBeforeTheNextLayersParametersArrive) {
  UseCpu();
  MakeModel();
  const Gradients expected = Expected();
  FakeArrival arrival(*model_);
  // The backward pass does not need the parameters of the first layer, whose
  // inputs need no gradients.
  arrival.on_arrival = [&](size_t variable) {
    if (variable == 2)
      std::fill_n(arrival.of(0), arrival.spans[0].size(), kNan);
  };
  const auto gradients = Compute(&arrival, /*early=*/true);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(*gradients, expected);
  EXPECT_THAT(arrival.awaited, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(ParameterArrivalTest, DevicesComputeTheSame) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const int count : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << count << " devices, seed " << seed);
      model_.reset();
      backends_.clear();
      UseStandIns(count, seed);
      MakeModel();
      const Gradients expected = Expected();
      FakeArrival arrival(*model_, host_memory());
      const auto gradients = Compute(&arrival, /*early=*/true);
      ASSERT_TRUE(gradients.ok()) << gradients.status();
      EXPECT_EQ(*gradients, expected);
      EXPECT_EQ(arrival.awaited.size(), kVariables);
    }
  }
}

// Nothing reads the parameters afterwards, which are freed here.
TEST_F(ParameterArrivalTest, AnErrorEndsThePassOfAllReplicas) {
  for (const int count : {1, 3}) {
    model_.reset();
    backends_.clear();
    UseStandIns(count, /*seed=*/1);
    MakeModel();
    const Gradients expected = Expected();
    for (size_t fails_at = 0; fails_at < kVariables; ++fails_at) {
      SCOPED_TRACE(fails_at);
      FakeArrival arrival(*model_, host_memory());
      arrival.fails_at = fails_at;
      const auto failed = Compute(&arrival, /*early=*/true);
      EXPECT_EQ(failed.status().code(), absl::StatusCode::kAborted);
      EXPECT_THAT(std::string(failed.status().message()), HasSubstr("lost"));
      EXPECT_EQ(arrival.awaited.size(), fails_at + 1);
    }
    FakeArrival arrival(*model_, host_memory());
    const auto gradients = Compute(&arrival, /*early=*/true);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    EXPECT_EQ(*gradients, expected);
  }
}

TEST_F(ParameterArrivalTest, ChecksWhatArrives) {
  UseCpu();
  MakeModel();
  FakeArrival arrival(*model_);
  arrival.values[2].pop_back();
  const absl::Status status = Compute(&arrival, /*early=*/true).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(model_->Variables()[2].name()));
}

}  // namespace
}  // namespace holdfast
