// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/apply_step.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/tensor/buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;

constexpr size_t kChunk = kChunkElements;

proto::Variable Variable(const std::string& name, int64_t size, float value,
                         uint32_t optimizer = 0) {
  proto::Variable variable;
  variable.set_name(name);
  variable.add_shape(size);
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_constant()->set_value(value);
  variable.set_optimizer(optimizer);
  return variable;
}

Buffer Bytes(const std::vector<float>& values) {
  return Buffer::FromString(
      std::string(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(float)));
}

// One slice's whole gradient in one piece.
std::vector<EncodedElements> Exact(Buffer data) {
  const uint64_t size = data.size() / sizeof(float);
  return {{proto::EXACT, size, std::move(data)}};
}
std::vector<EncodedElements> Exact(const std::vector<float>& values) {
  return Exact(Bytes(values));
}

// The same bytes in spans that end at `cuts`, each in memory of its own.
Buffer Cut(const std::vector<float>& values, const std::vector<size_t>& cuts) {
  const Buffer whole = Bytes(values);
  Buffer result;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    std::string span(end - begin, '\0');
    whole.Sub(begin, end - begin).CopyTo(span.data());
    result.Append(Buffer::FromString(std::move(span)));
    begin = end;
  };
  for (const size_t cut : cuts) add(cut);
  add(whole.size());
  return result;
}

// Variables with optimizers, and their changes by steps.
class Bench {
 public:
  Bench(const std::vector<proto::Variable>& variables,
        const std::vector<proto::Optimizer>& optimizers) {
    proto::Declaration declaration;
    std::vector<proto::Slice> placed;
    for (const proto::Variable& variable : variables) {
      *declaration.add_variables() = variable;
      proto::Slice slice;
      slice.set_variable(variable.name());
      slice.set_size(variable.shape(0));
      placed.push_back(slice);
    }
    std::vector<std::vector<float>> slots;
    for (const proto::Optimizer& optimizer : optimizers) {
      optimizers_.push_back(MakeOptimizer(optimizer));
      slots.push_back(optimizers_.back()->initial_slots());
      scalars_.emplace_back().set_learning_rate(optimizer.learning_rate());
    }
    store_ = *DenseStore::Create(declaration, placed, 0, slots);
  }

  void Step(const std::vector<WeightedGradient>& gradients,
            std::optional<float> clip_value = std::nullopt) {
    ApplyOptions options;
    options.clip_value = clip_value;
    Step(gradients, options);
  }
  void Step(const std::vector<WeightedGradient>& gradients,
            const ApplyOptions& options) {
    Step(GradientSum{gradients}, options);
  }
  void Step(const GradientSum& sum, const ApplyOptions& options) {
    ApplyStep(sum, scalars_, optimizers_, options, store_.get());
  }
  std::vector<float> Values(size_t slice) const {
    const Buffer read =
        store_->Read(*store_->newest(), slice, 0, store_->slices()[slice].size);
    std::vector<float> values(read.size() / sizeof(float));
    read.CopyTo(values.data());
    return values;
  }
  DenseStore& store() { return *store_; }

 private:
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<proto::StepScalars> scalars_;
  std::unique_ptr<DenseStore> store_;
};

proto::Optimizer Sgd(float rate) {
  proto::Optimizer optimizer;
  optimizer.set_learning_rate(rate);
  optimizer.mutable_sgd();
  return optimizer;
}

proto::Optimizer Momentum(float rate, float momentum) {
  proto::Optimizer optimizer;
  optimizer.set_learning_rate(rate);
  optimizer.mutable_momentum()->set_momentum(momentum);
  return optimizer;
}

TEST(ApplyStepTest, AWeightedSumByHand) {
  Bench bench({Variable("w", 2, 10)}, {Sgd(0.5f)});
  // 0.25 {8, -4} + 0.75 {4, 16} = {5, 11};  10 - 0.5 {5, 11} = {7.5, 4.5}.
  bench.Step({{0.25f, {Exact({8, -4})}}, {0.75f, {Exact({4, 16})}}});
  EXPECT_THAT(bench.Values(0), ElementsAre(7.5f, 4.5f));
  EXPECT_EQ(bench.store().newest()->number, GlobalStep(1));
  // A single gradient, scaled: 0.5 {2, 4} = {1, 2};  {7.5, 4.5} - 0.5 {1, 2}.
  bench.Step({{0.5f, {Exact({2, 4})}}});
  EXPECT_THAT(bench.Values(0), ElementsAre(7, 3.5f));
  EXPECT_EQ(bench.store().newest()->number, GlobalStep(2));
}

// In float32 2^24 + 1 is 2^24 (a tie, to even), so
//   (2^24 + 1) + 1 = 2^24,   (1 + 1) + 2^24 = 2^24 + 2.
TEST(ApplyStepTest, AddsInTheOrderGiven) {
  const WeightedGradient big = {1, {Exact({0x1p24f})}};
  const WeightedGradient one = {1, {Exact({1})}};
  const struct {
    const char* what;
    std::vector<WeightedGradient> gradients;
    float sum;
  } kCases[] = {
      {"big, one, one", {big, one, one}, 0x1p24f},
      {"one, big, one", {one, big, one}, 0x1p24f},
      {"one, one, big", {one, one, big}, 0x1p24f + 2},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    Bench bench({Variable("w", 1, 0)}, {Sgd(1)});
    bench.Step(c.gradients);
    EXPECT_THAT(bench.Values(0), ElementsAre(-c.sum));
  }
}

// Rounded at each operation, not once at the end of a fused one. With
// g = 1 + 2^-12, the product g g = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11 (a
// tie, to even); with -(1 + 2^-11) added it is 0, where a fused multiply-add
// keeps 2^-24.
TEST(ApplyStepTest, RoundsTheProductBeforeItIsAdded) {
  const float g = 1 + 0x1p-12f;
  Bench bench({Variable("w", 64, 0)}, {Sgd(1)});
  bench.Step({{1, {Exact(std::vector<float>(64, -(1 + 0x1p-11f)))}},
              {g, {Exact(std::vector<float>(64, g))}}});
  EXPECT_THAT(bench.Values(0), Each(0.0f));
}

// Each element of each gradient, before it is weighted: with the bound 2
//   {3, -3, 1, -2} -> {2, -2, 1, -2},  {-9, 5, 1.5, 2} -> {-2, 2, 1.5, 2},
// and 0.25 of these and 0.5 of those make {-0.5, 0.5, 1, 0.5}.
TEST(ApplyStepTest, ClipsByValueBeforeItWeights) {
  Bench bench({Variable("w", 4, 0)}, {Sgd(1)});
  const std::vector<WeightedGradient> gradients = {
      {0.25f, {Exact({3, -3, 1, -2})}}, {0.5f, {Exact({-9, 5, 1.5f, 2})}}};
  bench.Step(gradients, 2.0f);
  EXPECT_THAT(bench.Values(0), ElementsAre(0.5f, -0.5f, -1, -0.5f));
  // And without: 0.25 {3, -3, 1, -2} + 0.5 {-9, 5, 1.5, 2}
  //                = {-3.75, 1.75, 1, 0.5}.
  bench.Step(gradients);
  EXPECT_THAT(bench.Values(0), ElementsAre(4.25f, -2.25f, -2, -1));
}

// Shares 0.25 and 0.75 of 8 and 16 make 14, whatever the weights, the bound and
// the optimizer: 2 + 0.5 (14 - 2) = 8. "w" is trained in the same step.
TEST(ApplyStepTest, WhatIsAveragedIsSharedAndNotClipped) {
  proto::Variable mean = Variable("mean", 2, 2);
  mean.mutable_moving_average()->set_momentum(0.5f);
  Bench bench({mean, Variable("w", 1, 1)}, {Momentum(0.5f, 0.9f)});
  EXPECT_EQ(bench.store().num_slots(0), 0u);
  EXPECT_EQ(bench.store().num_slots(1), 1u);
  bench.Step({{0.125f, {Exact({8, 8}), Exact(std::vector<float>{4})}, 0.25f},
              {0.5f, {Exact({16, 16}), Exact(std::vector<float>{1})}, 0.75f}},
             /*clip_value=*/1.0f);
  EXPECT_THAT(bench.Values(0), Each(8.0f));
  // 1 - 0.5 (0.125 + 0.5).
  EXPECT_THAT(bench.Values(1), ElementsAre(0.6875f));
}

// Element i of gradient k is (2 k + 1) (i + 1), so that the mean of n is
// n (i + 1). Weights that are 1/n rounded miss that for n = 5, 7, ...
TEST(ApplyStepTest, AMeanOfWholeNumbersIsExact) {
  std::vector<int> counts = {64, 100};
  for (int n = 1; n <= 16; ++n) counts.push_back(n);
  constexpr int kSize = 67;
  for (const int n : counts) {
    GradientSum sum;
    sum.weight_divisor = static_cast<float>(n);
    for (int k = 0; k < n; ++k) {
      std::vector<float> gradient;
      for (int i = 0; i < kSize; ++i) {
        gradient.push_back(static_cast<float>((2 * k + 1) * (i + 1)));
      }
      sum.terms.push_back({1, {Exact(gradient)}});
    }
    for (const Simd simd : SupportedSimd()) {
      SCOPED_TRACE(testing::Message() << n << " gradients, " << SimdName(simd));
      Bench bench({Variable("w", kSize, 0)}, {Sgd(1)});
      ApplyOptions options;
      options.simd = simd;
      bench.Step(sum, options);
      const std::vector<float> values = bench.Values(0);
      for (int i = 0; i < kSize; ++i) {
        ASSERT_EQ(values[i], -static_cast<float>(n * (i + 1))) << i;
      }
    }
  }
}

// (3 + 4) / 7 = 1, with 2 + 0.5 (1 - 2) = 1.5; in the same step (2 + 0.5 x 8) /
// 3.
TEST(ApplyStepTest, SharesHaveADivisorOfTheirOwn) {
  proto::Variable mean = Variable("mean", 2, 2);
  mean.mutable_moving_average()->set_momentum(0.5f);
  Bench bench({mean, Variable("w", 2, 0)}, {Sgd(1)});
  GradientSum sum;
  sum.terms = {{1, {Exact({3, 3}), Exact({2, 2})}, 1},
               {0.5f, {Exact({2, 2}), Exact({8, 8})}, 2}};
  sum.weight_divisor = 3;
  sum.share_divisor = 7;
  bench.Step(sum, ApplyOptions());
  EXPECT_THAT(bench.Values(0), Each(1.5f));
  EXPECT_THAT(bench.Values(1), Each(-2.0f));
}

// A single gradient is divided, too, and clipped first.
TEST(ApplyStepTest, DividesAfterItHasClippedAndWeighted) {
  Bench bench({Variable("w", 2, 0)}, {Sgd(1)});
  GradientSum sum;
  sum.terms = {{0.5f, {Exact({4, 24})}}};
  sum.weight_divisor = 3;
  ApplyOptions options;
  bench.Step(sum, options);
  EXPECT_THAT(bench.Values(0), ElementsAre(-2 / 3.0f, -4));
  options.clip_value = 12;
  bench.Step(sum, options);
  EXPECT_THAT(bench.Values(0), ElementsAre(-4 / 3.0f, -6));
}

// Vectors have four elements or more: five elements are one vector and a rest,
// 67 are several.
TEST(ApplyStepTest, ClippingLeavesNanAndNothingElseBeyondTheBound) {
  const float infinite = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const size_t size : {1, 5, 67}) {
    for (size_t at = 0; at < size; ++at) {
      for (const bool second : {false, true}) {
        std::vector<float> special(size, infinite);
        for (size_t i = at / 2; i < size; ++i) special[i] = -infinite;
        special[at] = nan;
        const std::vector<float> zero(size, 0);
        Bench bench({Variable("w", static_cast<int64_t>(size), 0)}, {Sgd(1)});
        bench.Step({{1, {Exact(second ? zero : special)}},
                    {1, {Exact(second ? special : zero)}}},
                   0.5f);
        const std::vector<float> values = bench.Values(0);
        for (size_t i = 0; i < size; ++i) {
          if (i == at) {
            EXPECT_TRUE(std::isnan(values[i])) << size << " " << i;
          } else {
            EXPECT_EQ(values[i], i < at / 2 ? -0.5f : 0.5f) << size << " " << i;
          }
        }
      }
    }
  }
}

TEST(ApplyStepTest, SlotsBeginAsTheOptimizerSays) {
  proto::Optimizer adagrad;
  adagrad.set_learning_rate(1);
  adagrad.mutable_adagrad()->set_initial_accumulator_value(7);
  adagrad.mutable_adagrad()->set_epsilon(1);
  Bench bench({Variable("w", 2, 1)}, {adagrad});
  // a = 7 + 3^2 = 16;  w = 1 - 3 / (4 + 1) = 0.4.
  bench.Step({{1, {Exact({3, 3})}}});
  EXPECT_THAT(bench.Values(0), Each(FloatEq(0.4f)));
}

TEST(ApplyStepTest, SlotsAndOptimizersGoByVariable) {
  Bench bench(
      {Variable("m", 1, 1, 1), Variable("s", 1, 1, 0), Variable("f", 1, 1, 1)},
      {Sgd(0.25f), Momentum(0.5f, 0.5f)});
  const auto gradient = [](float m, float s, float f) {
    return std::vector<WeightedGradient>{
        {1, {Exact({m}), Exact({s}), Exact({f})}}};
  };
  // m: a = 1, w = 1 - 0.5 = 0.5;        s: 1 - 0.25 2 = 0.5;
  // f: a = 4, w = 1 - 2 = -1.
  bench.Step(gradient(1, 2, 4));
  EXPECT_THAT(bench.Values(0), ElementsAre(0.5f));
  EXPECT_THAT(bench.Values(1), ElementsAre(0.5f));
  EXPECT_THAT(bench.Values(2), ElementsAre(-1));
  // m: a = 0.5 + 1 = 1.5, w = 0.5 - 0.75 = -0.25;   s: 0.5;
  // f: a = 2 + 0 = 2, w = -1 - 1 = -2.
  bench.Step(gradient(1, 0, 0));
  EXPECT_THAT(bench.Values(0), ElementsAre(-0.25f));
  EXPECT_THAT(bench.Values(1), ElementsAre(0.5f));
  EXPECT_THAT(bench.Values(2), ElementsAre(-2));
}

TEST(ApplyStepTest, WhatIsNotTrainableStays) {
  proto::Variable frozen = Variable("frozen", 2, 3);
  frozen.set_trainable(false);
  Bench bench({frozen, Variable("w", 1, 1)}, {Sgd(1)});
  bench.Step({{1, {{}, Exact({1})}}});
  EXPECT_THAT(bench.Values(0), ElementsAre(3, 3));
  EXPECT_THAT(bench.Values(1), ElementsAre(0));
}

TEST(ApplyStepTest, AVariableWithoutElements) {
  Bench bench({Variable("none", 0, 0), Variable("w", 1, 1)}, {Sgd(1)});
  bench.Step({{1, {{}, Exact({1})}}, {1, {{}, Exact({1})}}});
  EXPECT_THAT(bench.Values(1), ElementsAre(-1));
  EXPECT_EQ(bench.store().newest()->number, GlobalStep(1));
}

// Three chunks, the last of 13 elements; gradients that came in spans whose
// borders are inside elements, at chunks' borders, and next to them.
TEST(ApplyStepTest, SeveralChunksAndBuffersCutInsideElements) {
  constexpr size_t kSize = 2 * kChunk + 13;
  std::vector<float> a(kSize), b(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    a[i] = static_cast<float>(i % 1021) / 7;
    b[i] = 3.0f / static_cast<float>(1 + i % 499);
  }
  const std::vector<std::vector<size_t>> kCuts = {
      {},
      {1, 2, 3, 4, 5},
      {4 * kChunk - 1, 4 * kChunk + 1, 8 * kChunk + 3},
      {4 * kChunk, 8 * kChunk},
      {8191, 8193, 16385, 4 * kSize - 1},
      // Misaligned from the beginning.
      {3, 1000003, 2000002},
  };
  for (size_t which = 0; which < kCuts.size(); ++which) {
    SCOPED_TRACE(which);
    Bench bench({Variable("w", kSize, 1)}, {Momentum(0.5f, 0.5f)});
    std::vector<float> value(kSize, 1), slot(kSize, 0);
    for (int step = 0; step < 2; ++step) {
      bench.Step({{0.3f, {Exact(Cut(a, kCuts[which]))}},
                  {0.7f, {Exact(Cut(b, kCuts[kCuts.size() - 1 - which]))}}});
      for (size_t i = 0; i < kSize; ++i) {
        float g = 0.3f * a[i];
        g += 0.7f * b[i];
        slot[i] = 0.5f * slot[i] + g;
        value[i] = value[i] - 0.5f * slot[i];
      }
    }
    const std::vector<float> values = bench.Values(0);
    ASSERT_EQ(values.size(), kSize);
    EXPECT_EQ(std::memcmp(values.data(), value.data(), kSize * sizeof(float)),
              0);
  }
}

// Large enough for helpers and for streams, in pieces, one of them in a lossy
// encoding, together with a small variable.
TEST(ApplyStepTest, SameBitsWithAllThreadsAndVectors) {
  constexpr size_t kSize = (size_t{1} << 23) + 12345;
  std::vector<float> a(kSize), b(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    a[i] = static_cast<float>(i % 1021) / 7;
    b[i] = 3.0f / static_cast<float>(1 + i % 499);
  }
  std::vector<size_t> borders;
  for (size_t at = 16383; at < 4 * kSize - 70000; at += 16384) {
    borders.push_back(at);
  }
  std::vector<EncodedElements> pieces = Exact(Cut(a, borders));
  // The last 1001 elements by themselves, of upper halves.
  pieces[0].size -= 1001;
  pieces[0].data = pieces[0].data.Sub(0, 4 * pieces[0].size);
  std::string halves;
  for (size_t i = kSize - 1001; i < kSize; ++i) {
    halves.append(reinterpret_cast<const char*>(&a[i]) + 2, 2);
  }
  pieces.push_back({proto::BFLOAT16, 1001, Buffer::FromString(halves)});
  const std::vector<EncodedElements> small = Exact({1, 2, 3});
  const std::vector<std::vector<WeightedGradient>> kSteps = {
      {{0.3f, {pieces, small}}},
      {{0.3f, {pieces, small}}, {0.7f, {Exact(b), small}}}};
  const auto run = [&](const ApplyOptions& options) {
    Bench bench({Variable("w", kSize, 1), Variable("s", 3, 1)},
                {Momentum(0.5f, 0.5f)});
    for (const auto& step : kSteps) {
      // Slots that a snapshot holds are written to other memory.
      const StoreSnapshot held = bench.store().Snapshot();
      bench.Step(step, options);
    }
    std::vector<float> values = bench.Values(0);
    const std::vector<float> more = bench.Values(1);
    values.insert(values.end(), more.begin(), more.end());
    return values;
  };
  ApplyOptions options;
  options.simd = Simd::kPlain;
  const std::vector<float> expected = run(options);
  // One element by hand: a = 0.3 g, w = 1 - 0.5 a; then g of both.
  float slot = 0.3f * a[99999], w = 1 - 0.5f * slot;
  float g = 0.3f * a[99999];
  g += 0.7f * b[99999];
  slot = 0.5f * slot + g;
  EXPECT_EQ(expected[99999], w - 0.5f * slot);
  for (int threads = 1; threads <= 8; ++threads) {
    const Simd simd = SupportedSimd()[threads % SupportedSimd().size()];
    ThreadPool pool(threads, "update");
    options.threads = &pool;
    options.simd = simd;
    const std::vector<float> values = run(options);
    ASSERT_EQ(values.size(), expected.size());
    EXPECT_EQ(std::memcmp(values.data(), expected.data(),
                          values.size() * sizeof(float)),
              0)
        << threads << " threads, " << SimdName(simd);
  }
}

// Memory of an old version is reused for the next one: its old content must not
// show.
TEST(ApplyStepTest, WhatIsLeftInUsedMemoryDoesNotShow) {
  Bench bench({Variable("w", 3, 0)}, {Sgd(1)});
  for (int step = 1; step <= 6; ++step) {
    bench.Step({{1, {Exact({-1, -2, -3})}}});
    const float n = static_cast<float>(step);
    EXPECT_THAT(bench.Values(0), ElementsAre(n, 2 * n, 3 * n));
  }
}

TEST(ApplyStepTest, AHeldVersionIsNotWrittenTo) {
  Bench bench({Variable("w", 2, 1)}, {Sgd(1)});
  const auto held = bench.store().newest();
  const Buffer read = bench.store().Read(*held, 0, 0, 2);
  for (int step = 0; step < 5; ++step) {
    bench.Step({{1, {Exact({1, 1})}}});
    std::vector<float> values(2);
    read.CopyTo(values.data());
    EXPECT_THAT(values, ElementsAre(1, 1)) << "after step " << step;
  }
  EXPECT_THAT(bench.Values(0), ElementsAre(-4, -4));
}

}  // namespace
}  // namespace holdfast
