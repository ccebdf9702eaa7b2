// SPDX-License-Identifier: Apache-2.0
#include "worker/model/replicated.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/norm.h"
#include "common/trace/testing/trace_testing.h"
#include "common/trace/trace.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Has everything that makes replicas differ: moving averages, dropout by
// position.
constexpr char kModel[] = R"pb(
  sequential {
    layers { conv2d { filters: 3 kernel_size: 3 padding: SAME } }
    layers { batch_norm {} }
    layers { relu {} }
    layers { flatten {} }
    layers { dropout { rate: 0.25 } }
    layers { dense { units: 6 } }
    layers { tanh {} }
    layers { dense { units: 4 } }
    loss { softmax_cross_entropy {} }
  }
)pb";
constexpr int64_t kExampleSize = 4 * 4 * 2;
const std::vector<int64_t> kShape = {4, 4, 2};

proto::Model ModelConfig() {
  proto::Model config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kModel, &config));
  return config;
}

// A batch, and values for the variables of a model.
struct Data {
  explicit Data(int64_t examples, uint32_t key = 1)
      : inputs(RandomValues(examples * kExampleSize, key)) {
    for (int64_t i = 0; i < examples; ++i) {
      labels.push_back(static_cast<int32_t>((3 * i + key) % 4));
      positions.push_back(100 * key + i);
    }
  }
  Batch batch() const { return {inputs, labels, positions}; }
  Batch Part(int64_t begin, int64_t size) const {
    return {absl::MakeConstSpan(inputs).subspan(begin * kExampleSize,
                                                size * kExampleSize),
            absl::MakeConstSpan(labels).subspan(begin, size),
            absl::MakeConstSpan(positions).subspan(begin, size)};
  }

  std::vector<float> inputs;
  std::vector<int32_t> labels;
  std::vector<int64_t> positions;
};

class Parameters {
 public:
  // If `memory` is null, the values are in ordinary memory.
  explicit Parameters(const Model& model, HostMemory* memory = nullptr) {
    for (const proto::Variable& variable : model.Variables()) {
      int64_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      values_.push_back(RandomValues(size, 50 + values_.size()));
      // A variance.
      if (variable.has_moving_average()) {
        for (float& value : values_.back()) value = std::fabs(value) + 0.1f;
      }
    }
    spans_.assign(values_.begin(), values_.end());
    if (memory == nullptr) return;
    for (absl::Span<const float>& span : spans_) {
      pinned_.push_back(memory->Allocate(span.size()));
      std::copy(span.begin(), span.end(), pinned_.back().get());
      span = {pinned_.back().get(), span.size()};
    }
  }
  absl::Span<const absl::Span<const float>> spans() const { return spans_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<HostBuffer> pinned_;
  std::vector<absl::Span<const float>> spans_;
};

struct Gradients {
  BatchResult result;
  std::map<int, std::vector<float>> by_variable;
};

// The parameters are in `memory`, if it is not null, and are freed at the end.
absl::StatusOr<Gradients> Compute(Model* model, const Batch& batch,
                                  HostMemory* memory = nullptr) {
  const Parameters parameters(*model, memory);
  Gradients made;
  const auto result = model->ComputeGradients(
      parameters.spans(), batch,
      [&](int variable, absl::Span<const float> gradient) {
        EXPECT_EQ(made.by_variable.count(variable), 0) << "given twice";
        made.by_variable[variable].assign(gradient.begin(), gradient.end());
      });
  if (!result.ok()) return result.status();
  made.result = *result;
  return made;
}

// The result for ranges of these sizes by the formula.
Gradients ByFormula(const Data& data, const std::vector<int64_t>& sizes) {
  const auto cpu = *CpuBackend::Create({});
  const auto model =
      *CreateModel(ModelConfig(), {kShape, 4}, 7, cpu.get(), ModelRegistry());
  Gradients sum;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    const auto part = Compute(model.get(), data.Part(begin, size));
    EXPECT_TRUE(part.ok()) << part.status();
    const float weight =
        static_cast<float>(static_cast<double>(size) / data.labels.size());
    for (const auto& [variable, gradient] : part->by_variable) {
      std::vector<float>& total = sum.by_variable[variable];
      total.resize(gradient.size());
      for (size_t i = 0; i < gradient.size(); ++i) {
        const float product = weight * gradient[i];
        total[i] = begin == 0 ? product : total[i] + product;
      }
    }
    sum.result.examples += part->result.examples;
    sum.result.loss_sum += part->result.loss_sum;
    sum.result.correct =
        sum.result.correct.value_or(0) + part->result.correct.value_or(0);
    begin += size;
  }
  return sum;
}

void ExpectSame(const absl::StatusOr<Gradients>& made,
                const Gradients& expected) {
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->result.finite);
  EXPECT_EQ(made->result.examples, expected.result.examples);
  EXPECT_EQ(made->result.loss_sum, expected.result.loss_sum);
  EXPECT_EQ(made->result.correct, expected.result.correct);
  EXPECT_EQ(made->result.absolute_error_sum, std::nullopt);
  ASSERT_EQ(made->by_variable.size(), expected.by_variable.size());
  for (const auto& [variable, gradient] : expected.by_variable) {
    EXPECT_TRUE(SameBits(made->by_variable.at(variable), gradient))
        << "variable " << variable;
  }
}

// Backends for a replicated model, destroyed in order.
struct Backends {
  std::vector<Backend*> all() const {
    std::vector<Backend*> pointers;
    for (const auto& backend : backends) pointers.push_back(backend.get());
    return pointers;
  }
  std::unique_ptr<Model> MakeModel() const {
    auto made = CreateReplicatedModel(ModelConfig(), {kShape, 4}, 7, all(),
                                      ModelRegistry());
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  std::vector<std::unique_ptr<Backend>> backends;
};

struct Cpus : Backends {
  explicit Cpus(int count) {
    for (int i = 0; i < count; ++i) {
      backends.push_back(*CpuBackend::Create({}));
    }
  }
};

// Fake devices of one machine, each of which computes like the CPU.
struct StandIns : Backends {
  StandIns(int count, uint64_t seed, bool ignored_peer_wait = false) {
    const auto machine = std::make_shared<HostRuntime::Machine>();
    const auto pinned = std::make_shared<PinnedRanges>();
    for (int i = 0; i < count; ++i) {
      HostRuntime::Options options;
      options.seed = seed + 1000 * i;
      options.machine = machine;
      options.ignored_peer_wait = ignored_peer_wait;
      options.misuse = &misuse;
      cpus.push_back(*CpuBackend::Create({}));
      auto runtime = std::make_unique<HostRuntime>(options);
      runtimes.push_back(runtime.get());
      auto math =
          std::make_unique<HostMath>(runtimes.back(), cpus.back().get());
      backends.push_back(std::make_unique<StreamBackend>(
          std::move(runtime), std::move(math),
          StreamBackend::Options{"host", {}, pinned}));
    }
  }
  ~StandIns() {
    for (std::unique_ptr<Backend>& backend : backends) backend.reset();
    EXPECT_EQ(misuse, absl::OkStatus());
  }

  absl::Status misuse;
  std::vector<std::unique_ptr<Backend>> cpus;
  std::vector<HostRuntime*> runtimes;
};

TEST(ReplicatedTest, SumsByTheFormula) {
  const Data data(7);
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {7}, {4, 3}, {3, 2, 2}, {2, 2, 2, 1}}) {
    SCOPED_TRACE(sizes.size());
    const Cpus cpus(static_cast<int>(sizes.size()));
    const auto model = cpus.MakeModel();
    ExpectSame(Compute(model.get(), data.batch()), ByFormula(data, sizes));
  }
}

TEST(ReplicatedTest, ABatchOfFewerExamplesThanReplicas) {
  const Data two(2, 5), seven(7);
  const Cpus cpus(3);
  const auto model = cpus.MakeModel();
  ExpectSame(Compute(model.get(), two.batch()), ByFormula(two, {1, 1}));
  // Replicas that were not used are used again.
  ExpectSame(Compute(model.get(), seven.batch()), ByFormula(seven, {3, 2, 2}));
  EXPECT_EQ(Compute(model.get(), Batch()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Threads determine which device's call comes first, and the seeds in what
// order the devices work.
TEST(ReplicatedTest, EveryOrderOfDevicesGivesTheSameBits) {
  const Data first(7), second(5, 2);
  const Gradients of_first = ByFormula(first, {4, 3});
  const Gradients of_second = ByFormula(second, {3, 2});
  const Gradients of_three = ByFormula(first, {3, 2, 2});
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const StandIns two(2, seed);
    const auto model = two.MakeModel();
    ExpectSame(Compute(model.get(), first.batch()), of_first);
    ExpectSame(Compute(model.get(), second.batch()), of_second);
    ExpectSame(Compute(model.get(), first.batch()), of_first);
    const StandIns three(3, seed);
    ExpectSame(Compute(three.MakeModel().get(), first.batch()), of_three);
  }
}

TEST(ReplicatedTest, AllCopyFromThePinnedMemoryOfOne) {
  const Data data(7);
  Data nans(7);
  std::fill(nans.inputs.begin(), nans.inputs.end(),
            std::numeric_limits<float>::quiet_NaN());
  const Gradients expected = ByFormula(data, {3, 2, 2});
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const StandIns three(3, seed);
    const auto model = three.MakeModel();
    HostMemory* const memory = three.backends[0]->host_memory();
    for (int i = 0; i < 2; ++i) {
      ExpectSame(Compute(model.get(), data.batch(), memory), expected);
      const auto made = Compute(model.get(), nans.batch(), memory);
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_FALSE(made->result.finite);
    }
  }
}

TEST(ReplicatedTest, AMissingWaitShows) {
  const Data data(7);
  const Gradients expected = ByFormula(data, {4, 3});
  int wrong = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const StandIns two(2, seed, /*ignored_peer_wait=*/true);
    const auto made = Compute(two.MakeModel().get(), data.batch());
    ASSERT_TRUE(made.ok());
    for (const auto& [variable, gradient] : expected.by_variable) {
      wrong += !SameBits(made->by_variable.at(variable), gradient);
    }
  }
  EXPECT_GT(wrong, 0);
}

TEST(ReplicatedTest, EvaluatesTheWholeBatch) {
  const Data data(7);
  const Cpus cpus(2);
  const auto model = cpus.MakeModel();
  const auto single = *CreateModel(ModelConfig(), {kShape, 4}, 7,
                                   cpus.backends[0].get(), ModelRegistry());
  const Parameters parameters(*single);
  const auto expected = single->Evaluate(parameters.spans(), data.batch());
  const auto made = model->Evaluate(parameters.spans(), data.batch());
  ASSERT_TRUE(expected.ok() && made.ok());
  EXPECT_EQ(made->loss_sum, expected->loss_sum);
  EXPECT_EQ(made->correct, expected->correct);
}

TEST(ReplicatedTest, ALossThatIsNotFiniteIsThatOfTheBatch) {
  for (int replica = 0; replica < 3; ++replica) {
    SCOPED_TRACE(replica);
    Data data(6);
    for (int64_t i = 0; i < kExampleSize; ++i) {
      data.inputs[(2 * replica + 1) * kExampleSize + i] =
          std::numeric_limits<float>::quiet_NaN();
    }
    const Gradients expected = ByFormula(Data(6), {2, 2, 2});
    const auto check = [&](const Backends& devices) {
      const auto model = devices.MakeModel();
      for (int i = 0; i < 2; ++i) {
        const auto made = Compute(model.get(), data.batch());
        ASSERT_TRUE(made.ok()) << made.status();
        EXPECT_FALSE(made->result.finite);
        EXPECT_THAT(made->by_variable, IsEmpty());
        // The model still works.
        ExpectSame(Compute(model.get(), Data(6).batch()), expected);
      }
    };
    for (uint64_t seed = 0; seed < 20; ++seed) check(StandIns(3, seed));
    check(Cpus(3));
  }
}

TEST(ReplicatedTest, NoReplicaWaitsForItsLossBeforeItsBackwardPass) {
  Tracer tracer({});
  {
    const StandIns devices(2, 1);
    for (Backend* const backend : devices.all()) backend->SetTracer(&tracer);
    tracer.NameThread("trainer");
    ASSERT_TRUE(Compute(devices.MakeModel().get(), Data(4).batch()).ok());
  }
  // The names of a track's spans, without those of layers.
  std::map<std::string, std::vector<std::string>> spans;
  for (const ReadTrace::Event& event : ReadTrace(tracer.ToJson()).events) {
    if (event.name == "backward" || event.name == "the loss" ||
        event.name == "the losses") {
      spans[event.track].push_back(event.name);
    }
  }
  for (const char* track : {"trainer", "thread replica 1"}) {
    EXPECT_THAT(spans[track], ElementsAre("backward", "the loss")) << track;
  }
  EXPECT_THAT(spans["thread gradients"], ElementsAre("the losses"));
}

TEST(ReplicatedTest, SumsOnADeviceComeWithFacts) {
  proto::Model config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(sequential {
             layers { flatten {} }
             layers { dense { units: 2048 } }
             layers { dense { units: 4 } }
             loss { softmax_cross_entropy {} }
           })pb",
      &config));
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    const StandIns devices(2, seed);
    const auto model = CreateReplicatedModel(config, {kShape, 4}, 7,
                                             devices.all(), ModelRegistry());
    ASSERT_TRUE(model.ok()) << model.status();
    const Parameters parameters(**model);
    int with_facts = 0;
    const auto result = (*model)->ComputeGradients(
        parameters.spans(), Data(4).batch(),
        [&](int variable, absl::Span<const float> gradient,
            const GradientFacts& facts) {
          if (!facts.sum_of_squares.has_value()) return;
          ++with_facts;
          // The first layer's kernel has 32 x 2048 values.
          EXPECT_EQ(variable, 0);
          EXPECT_EQ(*facts.sum_of_squares, SumOfSquares(gradient));
        });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(with_facts, 1);
  }
}

TEST(ReplicatedTest, AnErrorOfOneEndsAll) {
  for (int replica = 0; replica < 3; ++replica) {
    SCOPED_TRACE(replica);
    Data data(6);
    data.labels[2 * replica] = 4;
    const Cpus cpus(3);
    const absl::Status status =
        Compute(cpus.MakeModel().get(), data.batch()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("replica " + std::to_string(replica) + ": "));
  }
}

TEST(ReplicatedTest, ABrokenDeviceEndsAll) {
  for (int broken = 0; broken < 2; ++broken) {
    SCOPED_TRACE(broken);
    const StandIns devices(2, 3);
    const auto model = devices.MakeModel();
    ASSERT_TRUE(Compute(model.get(), Data(4).batch()).ok());
    devices.runtimes[broken]->FailWith(absl::InternalError("on fire"));
    const absl::Status status = Compute(model.get(), Data(4).batch()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("on fire"));
    // It must work again to be destroyed in order.
    devices.runtimes[broken]->FailWith(absl::OkStatus());
  }
}

TEST(ReplicatedTest, ADeviceThatBreaksInMidPassEndsAll) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const StandIns devices(2, seed);
    const auto model = devices.MakeModel();
    const Parameters parameters(*model);
    int calls = 0;
    const absl::Status status =
        model
            ->ComputeGradients(
                parameters.spans(), Data(4).batch(),
                [&](int, absl::Span<const float>) {
                  ++calls;
                  devices.runtimes[0]->FailWith(absl::InternalError("on fire"));
                })
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("on fire"));
    EXPECT_EQ(calls, 1);
    devices.runtimes[0]->FailWith(absl::OkStatus());
  }
}

// A user's own model that runs a script.
class Scripted final : public Model {
 public:
  using Script = std::function<absl::StatusOr<BatchResult>(const Batch& batch,
                                                           GradientSink sink)>;
  explicit Scripted(Script script) : script_(std::move(script)) {}

  std::vector<proto::Variable> Variables() const override {
    std::vector<proto::Variable> variables(3);
    for (proto::Variable& variable : variables) variable.add_shape(2);
    return variables;
  }
  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>>, const Batch& batch,
      GradientSink sink) override {
    return script_(batch, sink);
  }
  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>>, const Batch&) override {
    return BatchResult{};
  }

 private:
  const Script script_;
};

// Makes a replicated model of these models, in the order of the replicas.
std::unique_ptr<Model> Replicated(const Cpus& cpus,
                                  std::vector<Scripted::Script> scripts) {
  ModelRegistry registry;
  size_t next = 0;
  EXPECT_TRUE(registry
                  .Register("scripted",
                            [&](const ModelContext&) {
                              return std::make_unique<Scripted>(
                                  scripts[next++]);
                            })
                  .ok());
  proto::Model config;
  config.mutable_registered()->set_name("scripted");
  auto made =
      CreateReplicatedModel(config, {kShape, 4}, 7, cpus.all(), registry);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

BatchResult Of(const Batch& batch, double loss) {
  BatchResult result;
  result.examples = batch.size();
  result.loss_sum = loss;
  return result;
}

TEST(ReplicatedTest, GradientsOfARegisteredModelAreSummedOnTheHost) {
  const Cpus cpus(2);
  const std::vector<float> a = {1, 2}, b = {10, 30};
  const auto model = Replicated(cpus, {[&](const Batch& batch, auto sink) {
                                         sink(2, a);
                                         sink(0, a);
                                         sink(1, b);
                                         return Of(batch, 3);
                                       },
                                       // In another order.
                                       [&](const Batch& batch, auto sink) {
                                         sink(0, b);
                                         sink(1, b);
                                         sink(2, b);
                                         return Of(batch, 4);
                                       }});
  // CutBatch divides 4 examples into 2 and 2.
  const auto made = Compute(model.get(), Data(4).batch());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->result.loss_sum, 7);
  EXPECT_EQ(made->result.correct, std::nullopt);
  EXPECT_THAT(made->by_variable.at(0), ElementsAre(5.5, 16));
  EXPECT_THAT(made->by_variable.at(1), ElementsAre(10, 30));
  EXPECT_THAT(made->by_variable.at(2), ElementsAre(5.5, 16));
}

TEST(ReplicatedTest, AGradientLeavesWhileOthersAreComputed) {
  const Cpus cpus(2);
  const std::vector<float> values = {1, 2};
  std::vector<int> left;
  std::vector<std::vector<int>> left_before;
  const auto model = Replicated(cpus, {[&](const Batch& batch, auto sink) {
                                         for (const int variable : {2, 1, 0}) {
                                           left_before.push_back(left);
                                           sink(variable, values);
                                         }
                                         left_before.push_back(left);
                                         return Of(batch, 1);
                                       },
                                       [&](const Batch& batch, auto sink) {
                                         for (const int variable : {2, 1, 0}) {
                                           sink(variable, values);
                                         }
                                         return Of(batch, 1);
                                       }});
  const Parameters parameters(*model);
  const auto result = model->ComputeGradients(
      parameters.spans(), Data(4).batch(),
      [&](int variable, absl::Span<const float>) { left.push_back(variable); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(left_before, ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(2),
                                       ElementsAre(2, 1)));
  EXPECT_THAT(left, ElementsAre(2, 1, 0));
}

TEST(ReplicatedTest, RegisteredModelsThatDoNotAgree) {
  const Cpus cpus(2);
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  const Scripted::Script right = [&](const Batch& batch, auto sink) {
    for (const int variable : {2, 1, 0}) sink(variable, two);
    return Of(batch, 1);
  };
  const auto error_of = [&](Scripted::Script first, Scripted::Script second) {
    return std::string(
        Compute(Replicated(cpus, {first, second}).get(), Data(4).batch())
            .status()
            .message());
  };
  const Scripted::Script longer = [&](const Batch& batch, auto sink) {
    sink(2, three);
    return Of(batch, 1);
  };
  const Scripted::Script fewer = [&](const Batch& batch, auto sink) {
    sink(2, two);
    return Of(batch, 1);
  };
  const Scripted::Script stranger = [&](const Batch& batch, auto sink) {
    sink(3, two);
    return Of(batch, 1);
  };
  const Scripted::Script failing = [](const Batch&, auto) {
    return absl::UnavailableError("tired");
  };
  EXPECT_THAT(error_of(right, longer),
              HasSubstr("replicas 0 and 1 made gradients of 2 and 3 elements "
                        "for variable 2"));
  EXPECT_THAT(error_of(right, fewer),
              HasSubstr("did not make the same gradients"));
  EXPECT_THAT(error_of(fewer, right), "");
  EXPECT_THAT(error_of(right, stranger),
              HasSubstr("replica 1: the model made a gradient of variable 3"));
  EXPECT_THAT(error_of(stranger, right),
              HasSubstr("replica 0: the model made a gradient of variable 3"));
  EXPECT_EQ(error_of(right, failing), "replica 1: tired");
  EXPECT_EQ(error_of(failing, right), "replica 0: tired");
}

}  // namespace
}  // namespace holdfast
