// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/gradient.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "client/testing/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> SizesOf(const std::vector<Batch>& parts) {
  std::vector<int64_t> sizes;
  for (const Batch& part : parts) sizes.push_back(part.size());
  return sizes;
}

TEST(CutBatchTest, SizesDifferByOneAtMost) {
  // Two values for each of five examples.
  const std::vector<float> inputs = {0, 1, 10, 11, 20, 21, 30, 31, 40, 41};
  const std::vector<int32_t> labels = {5, 6, 7, 8, 9};
  const std::vector<int64_t> positions = {50, 60, 70, 80, 90};
  Batch batch = {inputs, labels, positions};
  batch.loss_scale = 8;
  EXPECT_THAT(SizesOf(CutBatch(batch, 1)), ElementsAre(5));
  EXPECT_THAT(SizesOf(CutBatch(batch, 3)), ElementsAre(2, 2, 1));
  EXPECT_THAT(SizesOf(CutBatch(batch, 7)), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(CutBatch({}, 3), IsEmpty());

  const std::vector<Batch> parts = CutBatch(batch, 2);
  ASSERT_EQ(parts.size(), 2);
  EXPECT_THAT(parts[0].inputs, ElementsAre(0, 1, 10, 11, 20, 21));
  EXPECT_THAT(parts[0].positions, ElementsAre(50, 60, 70));
  EXPECT_THAT(parts[1].inputs, ElementsAre(30, 31, 40, 41));
  EXPECT_THAT(parts[1].labels, ElementsAre(8, 9));
  EXPECT_THAT(parts[1].positions, ElementsAre(80, 90));
  EXPECT_EQ(parts[1].loss_scale, 8);
}

TEST(CutBatchTest, CutsTargetsAndWeights) {
  const std::vector<float> inputs = {1, 2, 3};
  const std::vector<float> targets = {10, 11, 20, 21, 30, 31};
  const std::vector<float> weights = {1, 0.5f, 2};
  Batch batch;
  batch.inputs = inputs;
  batch.targets = targets;
  batch.num_targets = 2;
  batch.weights = weights;
  ASSERT_EQ(batch.size(), 3);
  const std::vector<Batch> parts = CutBatch(batch, 2);
  EXPECT_THAT(SizesOf(parts), ElementsAre(2, 1));
  EXPECT_THAT(parts[0].targets, ElementsAre(10, 11, 20, 21));
  EXPECT_THAT(parts[0].weights, ElementsAre(1, 0.5f));
  EXPECT_THAT(parts[1].targets, ElementsAre(30, 31));
  EXPECT_THAT(parts[1].weights, ElementsAre(2));
}

TEST(CutBatchTest, TellsWhatComesNext) {
  const std::vector<float> inputs = {0, 1, 10, 11, 20, 21};
  const std::vector<int32_t> labels = {5, 6, 7};
  const std::vector<int64_t> positions = {50, 60, 70};
  const std::vector<float> next_inputs = {30, 31, 40, 41, 50, 51, 60, 61};
  const std::vector<int64_t> next_positions = {80, 90, 100, 110};
  Batch batch = {inputs, labels, positions, next_inputs, next_positions};
  std::vector<Batch> parts = CutBatch(batch, 2);
  ASSERT_EQ(parts.size(), 2);
  EXPECT_THAT(parts[0].next_inputs, ElementsAre(30, 31, 40, 41));
  EXPECT_THAT(parts[0].next_positions, ElementsAre(80, 90));
  EXPECT_THAT(parts[1].next_inputs, ElementsAre(50, 51, 60, 61));
  EXPECT_THAT(parts[1].next_positions, ElementsAre(100, 110));
  // Cut as the next batch will be.
  parts = CutBatch(batch, 3);
  EXPECT_THAT(parts[0].next_positions, ElementsAre(80, 90));
  EXPECT_THAT(parts[2].next_positions, ElementsAre(110));
  // The next batch may be shorter.
  batch.next_inputs = batch.next_inputs.first(4);
  batch.next_positions = batch.next_positions.first(2);
  parts = CutBatch(batch, 3);
  EXPECT_THAT(parts[1].next_positions, ElementsAre(90));
  EXPECT_TRUE(parts[2].next_positions.empty());
  parts = CutBatch(batch, 1);
  EXPECT_EQ(parts[0].next_inputs, batch.next_inputs);
  parts = CutBatch({inputs, labels, positions}, 2);
  EXPECT_TRUE(parts[1].next_positions.empty());
}

// Its variables are w [2] and u [1]; their gradients are the means of inputs
// and of labels, that of u first; an example's loss is its label.
class MeanModel final : public Model {
 public:
  // Order: the number of the computation, from 0, whose loss is NaN.
  int nan_loss_at = -1;
  // Order: what to do instead of calling the sink for u.
  std::function<void(GradientSink)> instead;

  bool averages_u = false;

  // The sizes of the batches.
  std::vector<int64_t> sizes;
  // The positions of the batches that they name as their next.
  std::vector<std::vector<int64_t>> next;
  std::vector<float> w;
  // Whether there was memory for the gradient of w, which was then written to
  // it.
  bool had_memory = false;

  std::vector<proto::Variable> Variables() const override {
    std::vector<proto::Variable> variables(2);
    variables[0].set_name("w");
    variables[0].add_shape(2);
    variables[1].set_name("u");
    variables[1].add_shape(1);
    if (averages_u) variables[1].mutable_moving_average();
    return variables;
  }

  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) override {
    sizes.push_back(batch.size());
    next.push_back({batch.next_positions.begin(), batch.next_positions.end()});
    BatchResult result;
    result.examples = batch.size();
    w.assign(2, 0);
    u_.assign(1, 0);
    for (int64_t i = 0; i < batch.size(); ++i) {
      result.loss_sum += batch.labels[i];
      w[0] += batch.inputs[2 * i];
      w[1] += batch.inputs[2 * i + 1];
      u_[0] += batch.labels[i];
    }
    for (float* value : {&w[0], &w[1], &u_[0]}) *value /= batch.size();
    result.finite = nan_loss_at != static_cast<int>(sizes.size()) - 1;
    if (!result.finite) return result;
    if (instead) {
      instead(sink);
    } else {
      sink(1, u_);
    }
    const absl::Span<float> memory = sink.Memory(0);
    had_memory = !memory.empty();
    if (had_memory) {
      std::copy(w.begin(), w.end(), memory.begin());
      sink(0, memory);
    } else {
      sink(0, w);
    }
    return result;
  }

  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) override {
    return absl::UnimplementedError("not used here");
  }

 private:
  std::vector<float> u_;
};

class GradientComputerTest : public ::testing::Test {
 protected:
  GradientComputerTest() : push_(cluster_.StartPush(GlobalStep(0))) {}

  absl::StatusOr<GradientComputer::Result> Compute(
      uint32_t micro_batches, GradientComputer::Kept* keep = nullptr) {
    options_.micro_batches = micro_batches;
    return GradientComputer(&model_, options_)
        .Compute(at_, Batch{inputs_, labels_}, push_.get(), keep);
  }

  // Sums are 300 and 305, means 60 and 61; of the labels 10 and 2.
  std::vector<float> inputs_ = {0, 1, 10, 11, 20, 21, 30, 31, 240, 241};
  std::vector<int32_t> labels_ = {0, 1, 2, 3, 4};
  const Parameters at_ = {GlobalStep(0), {{0, 0}, {0}}};
  MeanModel model_;
  GradientComputer::Options options_;
  FakeCluster cluster_{proto::Declaration()};
  std::unique_ptr<Cluster::Push> push_;
};

TEST_F(GradientComputerTest, HandsInTheModelsMemory) {
  const auto result = Compute(1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->examples, 5);
  EXPECT_EQ(result->loss, 2);
  EXPECT_EQ(result->clip_factor, 1);
  EXPECT_EQ(result->not_finite, "");
  EXPECT_THAT(cluster_.calls("add"), ElementsAre("add 1", "add 0"));
  EXPECT_THAT(cluster_.pushed(1), ElementsAre(Pair(0, ElementsAre(60, 61)),
                                              Pair(1, ElementsAre(2))));
  // There is no copy: the model's next values show.
  model_.w[0] = 7;
  EXPECT_TRUE(push_->Await(absl::InfiniteFuture()).ok());
  EXPECT_THAT(cluster_.overwritten(), ElementsAre(1));
}

TEST_F(GradientComputerTest, KeepsACopyWhereItIsToldTo) {
  GradientComputer::Kept keep;
  const auto result = Compute(1, &keep);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(keep.gradients, ElementsAre(ElementsAre(60, 61), ElementsAre(2)));
  EXPECT_THAT(cluster_.pushed(1), ElementsAre(Pair(0, ElementsAre(60, 61)),
                                              Pair(1, ElementsAre(2))));
  model_.w[0] = 7;
  EXPECT_TRUE(push_->Await(absl::InfiniteFuture()).ok());
  EXPECT_THAT(cluster_.overwritten(), IsEmpty());
}

TEST_F(GradientComputerTest, CopyHasTheSameBits) {
  // Neither sums nor means of these are exact.
  inputs_ = {0.1f,  1e-40f, 1 / 3.0f, -0.7f, 1e30f,
             3e-3f, -1e7f,  2e5f,     0,     -0.0f};
  ASSERT_TRUE(Compute(1).ok());
  const auto whole = cluster_.pushed(1);
  push_ = cluster_.StartPush(GlobalStep(0));
  GradientComputer::Kept keep;
  ASSERT_TRUE(Compute(1, &keep).ok());
  EXPECT_EQ(cluster_.pushed(2), whole);
}

TEST_F(GradientComputerTest, MicroBatchesAreWeightedByTheirExamples) {
  // Parts of 3 and 2 examples: means of the first 10 and 11, and 1; of the
  // second 135 and 136, and 3.5: 0.6 x 10 + 0.4 x 135 = 60.
  GradientComputer::Kept keep;
  const auto result = Compute(2, &keep);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(model_.sizes, ElementsAre(3, 2));
  EXPECT_EQ(result->examples, 5);
  EXPECT_EQ(result->loss, 2);
  // Each is added once, when its last part is done.
  EXPECT_THAT(cluster_.calls("add"), ElementsAre("add 1", "add 0"));
  EXPECT_THAT(cluster_.pushed(1),
              ElementsAre(Pair(0, ElementsAre(FloatEq(60), FloatEq(61))),
                          Pair(1, ElementsAre(FloatEq(2)))));
}

TEST_F(GradientComputerTest, TheNextOfAMicroBatchIsTheOneBehindIt) {
  GradientComputer computer(&model_, {.micro_batches = 2});
  const std::vector<int64_t> positions = {0, 1, 2, 3, 4};
  const std::vector<float> next_inputs(6);
  const std::vector<int64_t> next_positions = {5, 6, 7};
  const Batch batch = {inputs_, labels_, positions, next_inputs,
                       next_positions};
  ASSERT_TRUE(computer.Compute(at_, batch, push_.get()).ok());
  EXPECT_THAT(model_.next, ElementsAre(ElementsAre(3, 4), ElementsAre(5, 6)));
}

TEST_F(GradientComputerTest, MicroBatchesOfOneExample) {
  const auto result = Compute(100);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(model_.sizes, ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(cluster_.pushed(1),
              ElementsAre(Pair(0, ElementsAre(FloatEq(60), FloatEq(61))),
                          Pair(1, ElementsAre(FloatEq(2)))));
}

TEST_F(GradientComputerTest, MemoryOfMicroBatchesIsItsOwn) {
  GradientComputer computer(&model_, {.micro_batches = 2});
  const Batch batch = {inputs_, labels_};
  ASSERT_TRUE(computer.Compute(at_, batch, push_.get()).ok());
  model_.w[0] = 7;
  EXPECT_TRUE(push_->Await(absl::InfiniteFuture()).ok());
  EXPECT_THAT(cluster_.overwritten(), IsEmpty());
  // A second gradient starts from zero.
  const auto next = cluster_.StartPush(GlobalStep(0));
  ASSERT_TRUE(computer.Compute(at_, batch, next.get()).ok());
  EXPECT_EQ(cluster_.pushed(2), cluster_.pushed(1));
}

TEST_F(GradientComputerTest, ClipsByTheNormOverAllVariables) {
  // Gradients (2, 3) and (6): the norm is sqrt(4 + 9 + 36) = 7.
  inputs_ = {2, 3};
  labels_ = {6};
  options_.max_global_norm = 3.5f;
  auto result = Compute(1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->clip_factor, 0.5f);
  // Parts are sent unscaled.
  EXPECT_THAT(cluster_.pushed(1),
              ElementsAre(Pair(0, ElementsAre(2, 3)), Pair(1, ElementsAre(6))));
  options_.max_global_norm = 7;
  result = Compute(1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->clip_factor, 1);
}

TEST_F(GradientComputerTest, WhatIsAveragedIsNotInTheNorm) {
  inputs_ = {3, 4};
  labels_ = {100};
  model_.averages_u = true;
  options_.max_global_norm = 2.5f;
  const auto result = Compute(1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->clip_factor, 0.5f);
  EXPECT_THAT(cluster_.pushed(1), ElementsAre(Pair(0, ElementsAre(3, 4)),
                                              Pair(1, ElementsAre(100))));
}

TEST_F(GradientComputerTest, ClipsByTheNormOfTheSumOfMicroBatches) {
  // The sums of squares of the parts' gradients would differ.
  inputs_ = {0, 0, 4, 6};
  labels_ = {0, 12};
  options_.max_global_norm = 3.5f;
  const auto result = Compute(2);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->clip_factor, 0.5f);
}

TEST_F(GradientComputerTest, NothingToGiveOfNoExamples) {
  inputs_.clear();
  labels_.clear();
  const auto result = Compute(2);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->examples, 0);
  EXPECT_EQ(result->loss, 0);
  EXPECT_EQ(result->not_finite, "");
  EXPECT_THAT(model_.sizes, IsEmpty());
}

TEST_F(GradientComputerTest, GradientsAreWrittenToThePushsMemory) {
  cluster_.memory = {{0, 2}};
  const absl::Span<float> memory = push_->Memory(0);
  const auto result = Compute(1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(model_.had_memory);
  EXPECT_THAT(memory, ElementsAre(60, 61));
  EXPECT_THAT(cluster_.pushed(1), ElementsAre(Pair(0, ElementsAre(60, 61)),
                                              Pair(1, ElementsAre(2))));
  // No other copy was made.
  model_.w[0] = 7;
  EXPECT_TRUE(push_->Await(absl::InfiniteFuture()).ok());
  EXPECT_THAT(cluster_.overwritten(), IsEmpty());
}

// If there is none, a copy is kept.
TEST_F(GradientComputerTest, WhatLiesInThePushsMemoryNeedsNoCopy) {
  cluster_.memory = {{0, 2}};
  GradientComputer::Kept keep;
  ASSERT_TRUE(Compute(1, &keep).ok());
  EXPECT_THAT(push_->Memory(0), ElementsAre(60, 61));
  EXPECT_THAT(keep.gradients, ElementsAre(IsEmpty(), ElementsAre(2)));
}

TEST_F(GradientComputerTest, TheSumOfMicroBatchesIsMadeInThePushsMemory) {
  cluster_.memory = {{0, 2}};
  ASSERT_TRUE(Compute(2).ok());
  // Each part has its own memory.
  EXPECT_FALSE(model_.had_memory);
  EXPECT_THAT(push_->Memory(0), ElementsAre(FloatEq(60), FloatEq(61)));
  EXPECT_THAT(cluster_.pushed(1)[0], ElementsAre(FloatEq(60), FloatEq(61)));
}

TEST_F(GradientComputerTest, NothingToGiveWhenALossIsNotFinite) {
  for (const int at : {0, 1}) {
    model_.sizes.clear();
    model_.nan_loss_at = at;
    const auto result = Compute(2);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->examples, 0);
    EXPECT_EQ(result->not_finite, "the loss");
    EXPECT_THAT(cluster_.calls("add"), IsEmpty());
  }
}

TEST_F(GradientComputerTest, NothingToGiveWhenAGradientIsNotFinite) {
  // Infinite in the first part alone, and in the sum.
  for (const uint32_t micro_batches : {1, 2}) {
    inputs_[0] = kInfinity;
    const auto result = Compute(micro_batches);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->examples, 0);
    EXPECT_EQ(result->not_finite, "a gradient");
    EXPECT_EQ(cluster_.pushed(1).count(0), 0);
  }
}

// The facts are wrong, so that it shows what they are used for.
TEST_F(GradientComputerTest, FactsSpareTheReadingOfAGradient) {
  inputs_ = {3, 4};
  labels_ = {6};
  options_.max_global_norm = 2.5f;
  const std::vector<float> u = {6};
  GradientFacts facts;
  model_.instead = [&](GradientSink sink) { sink(1, u, facts); };
  // The norm is sqrt(9 + 16 + 0).
  facts.sum_of_squares = 0;
  auto result = Compute(1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->clip_factor, 0.5f);
  for (const float bad : {kInfinity, kNan}) {
    facts.sum_of_squares = bad;
    result = Compute(1);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->not_finite, "a gradient");
  }
}

TEST_F(GradientComputerTest, FactsOfAMicroBatchAreNotThoseOfTheSum) {
  inputs_ = {3, 4, 3, 4};
  labels_ = {0, 0};
  options_.max_global_norm = 2.5f;
  const std::vector<float> u = {0};
  model_.instead = [&](GradientSink sink) {
    sink(1, u, GradientFacts{.sum_of_squares = 1e9});
  };
  const auto result = Compute(2);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->clip_factor, 0.5f);
}

TEST_F(GradientComputerTest, RefusesGradientsThatDoNotFit) {
  const std::vector<float> values(3);
  for (const uint32_t micro_batches : {1, 2}) {
    for (const int variable : {-1, 1, 2}) {
      model_.instead = [&](GradientSink sink) { sink(variable, values); };
      const absl::Status status = Compute(micro_batches).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("does not fit"));
    }
  }
}

TEST_F(GradientComputerTest, EndsWithThePushsError) {
  cluster_.errors["add 1"] = absl::UnavailableError("ps is away");
  EXPECT_EQ(Compute(2).status(), absl::UnavailableError("ps is away"));
  EXPECT_THAT(cluster_.calls("add"), ElementsAre("add 1"));
}

}  // namespace
}  // namespace holdfast
