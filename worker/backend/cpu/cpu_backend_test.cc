// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "common/base/random.h"
#include "worker/backend/cpu/testing/test_matrices.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsNan;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(CpuBackendTest, TellsCoreAndThreads) {
  const Backend::Description description = MakeBackend()->Describe();
  EXPECT_FALSE(description.core.empty());
  EXPECT_EQ(description.threads, 1);
}

TEST(CpuBackendTest, RefusesImpossibleNumbersOfThreads) {
  EXPECT_THAT(CpuBackend::Create({0}).status().message(),
              HasSubstr("0 threads; it needs at least 1"));
  EXPECT_THAT(CpuBackend::Create({1000000}).status().message(),
              HasSubstr("built for at most"));
}

TEST(CpuBackendTest, CopiesNothing) {
  auto backend = MakeBackend();
  const std::vector<float> host = {1, 2, 3, 4, 5, 6};
  DeviceBuffer staging;
  absl::StatusOr<ConstMatrix> matrix = backend->Upload(host, 2, 3, &staging);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->data, host.data());
  EXPECT_EQ(matrix->rows, 2);
  EXPECT_EQ(matrix->cols, 3);
  absl::StatusOr<Download> download = backend->StartDownload(*matrix);
  ASSERT_TRUE(download.ok());
  EXPECT_TRUE(*backend->HasArrived(*download));
  EXPECT_TRUE(backend->Await(*download).ok());
  EXPECT_EQ(download->values, absl::MakeConstSpan(host));
}

TEST(CpuBackendTest, WritesWhereItIsToBeDownloaded) {
  auto backend = MakeBackend();
  std::vector<float> host(6);
  DeviceBuffer buffer;
  const auto there = backend->ReserveFor(absl::MakeSpan(host), 2, 3, &buffer);
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->data, host.data());
  EXPECT_EQ(there->rows, 2);
  EXPECT_EQ(there->cols, 3);
  EXPECT_EQ(buffer.capacity(), 0);
  const auto elsewhere = backend->ReserveFor({}, 2, 3, &buffer);
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_EQ(elsewhere->data, buffer.View(2, 3).data);
  EXPECT_EQ(elsewhere->size(), 6);
}

TEST(CpuBackendTest, BuffersGrowAndStay) {
  auto backend = MakeBackend();
  DeviceBuffer buffer;
  ASSERT_TRUE(backend->Reserve(10, &buffer).ok());
  EXPECT_EQ(buffer.capacity(), 10);
  const float* data = buffer.View(2, 5).data;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  ASSERT_TRUE(backend->Reserve(7, &buffer).ok());
  EXPECT_EQ(buffer.View(1, 7).data, data);
  ASSERT_TRUE(backend->Reserve(11, &buffer).ok());
  EXPECT_EQ(buffer.capacity(), 11);
}

TEST(CpuBackendTest, SaysWhenThereIsNoMemory) {
  auto backend = MakeBackend();
  DeviceBuffer buffer;
  ASSERT_TRUE(backend->Reserve(1, &buffer).ok());
  // The number of bytes overflows.
  const absl::Status status = backend->Reserve(int64_t{1} << 62, &buffer);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(buffer.capacity(), 0);
}

// a = [1 2 3; 4 5 6], b = [1 0; 2 1; 0 3], by hand: a b = [5 11; 14 23].
TEST(CpuBackendTest, MultipliesInEveryForm) {
  auto backend = MakeBackend();
  const Values a(2, 3, {1, 2, 3, 4, 5, 6});
  const Values a_transposed(3, 2, {1, 4, 2, 5, 3, 6});
  const Values b(3, 2, {1, 0, 2, 1, 0, 3});
  const Values b_transposed(2, 3, {1, 2, 0, 0, 1, 3});
  Values c(2, 2, {kNan, kNan, kNan, kNan});
  backend->MatMul(Form::kPlain, a, Form::kPlain, b, c);
  EXPECT_THAT(c.values, ElementsAre(5, 11, 14, 23));
  backend->MatMul(Form::kTransposed, a_transposed, Form::kPlain, b, c);
  EXPECT_THAT(c.values, ElementsAre(5, 11, 14, 23));
  backend->MatMul(Form::kPlain, a, Form::kTransposed, b_transposed, c);
  EXPECT_THAT(c.values, ElementsAre(5, 11, 14, 23));
  backend->MatMul(Form::kTransposed, a_transposed, Form::kTransposed,
                  b_transposed, c);
  EXPECT_THAT(c.values, ElementsAre(5, 11, 14, 23));
}

TEST(CpuBackendTest, MultipliesWithoutRows) {
  auto backend = MakeBackend();
  const Values none(0, 2, {});
  Values c(2, 2, {kNan, kNan, kNan, kNan});
  backend->MatMul(Form::kTransposed, none, Form::kPlain, none, c);
  EXPECT_THAT(c.values, Each(0.0f));
  Values empty(0, 2, {});
  backend->MatMul(Form::kPlain, none, Form::kPlain, c, empty);
}

// Factors are rounded, sums are not: 1 + 2^-8 and 1 + 2^-11 are halfway between
// two bfloat16 values and two float16 values.
TEST(CpuBackendTest, MultipliesInSixteenBits) {
  const Values a(1, 3, {1 + 0x1p-8f, 1 + 0x1p-11f, 1e5f});
  const Values b(3, 1, {1, 1, 1});
  const Values one(1, 1, {4096});
  const auto product = [&](Precision precision, ConstMatrix a, ConstMatrix b) {
    auto backend = *CpuBackend::Create({.precision = precision});
    Values c(1, 1, {kNan});
    backend->MatMul(Form::kPlain, a, Form::kPlain, b, c);
    EXPECT_TRUE(backend->StartDownload(c).ok());
    return c.values[0];
  };
  const auto of = [&](Precision precision, int64_t k) {
    return product(precision, {a.values.data() + k, 1, 1},
                   {b.values.data(), 1, 1});
  };
  EXPECT_EQ(of(Precision::kFloat32, 0), 1 + 0x1p-8f);
  EXPECT_EQ(of(Precision::kBfloat16, 0), 1);
  EXPECT_EQ(of(Precision::kFloat16, 0), 1 + 0x1p-8f);
  EXPECT_EQ(of(Precision::kFloat16, 1), 1);
  EXPECT_EQ(of(Precision::kFloat16, 2), kInfinity);
  EXPECT_NEAR(of(Precision::kBfloat16, 2), 1e5f, 1e5f * 0x1p-8f);
  // The other factor is rounded, too. 4096 x 4096 is beyond float16, but is not
  // a factor.
  EXPECT_EQ(product(Precision::kFloat16, {b.values.data(), 1, 1},
                    {a.values.data() + 2, 1, 1}),
            kInfinity);
  EXPECT_EQ(product(Precision::kFloat16, one, one), 4096.0f * 4096);
  EXPECT_EQ(product(Precision::kBfloat16, one, one), 4096.0f * 4096);
}

// Between products and batch norms, results are rounded if the backend is asked
// to, and only then.
TEST(CpuBackendTest, RoundsActivationsIfAsked) {
  const Values x(1, 2, {1, 0x1p-8f}), ones(2, 1, {1, 1});
  const auto sum = [&](CpuBackend::Options options) {
    auto backend = *CpuBackend::Create(options);
    DeviceBuffer buffer;
    const Matrix y = *backend->ReserveRounded(1, 1, &buffer);
    EXPECT_EQ(y.rounded, nullptr);
    EXPECT_EQ(y.rounded_alone, backend->RoundsActivations());
    backend->MatMul(Form::kPlain, x, Form::kPlain, ones, y);
    return y.data[0];
  };
  EXPECT_EQ(sum({.precision = Precision::kBfloat16}), 1 + 0x1p-8f);
  EXPECT_EQ(sum({.precision = Precision::kBfloat16, .activations = true}), 1);
  EXPECT_EQ(sum({.precision = Precision::kFloat16, .activations = true}),
            1 + 0x1p-8f);
  EXPECT_EQ(sum({.activations = true}), 1 + 0x1p-8f);
}

TEST(CpuBackendTest, Scales) {
  Values x(2, 2, {1, -3, kInfinity, 0});
  MakeBackend()->Scale(0.5f, x, x);
  EXPECT_THAT(x.values, ElementsAre(0.5f, -1.5f, kInfinity, 0));
}

TEST(CpuBackendTest, AddsAndCopies) {
  auto backend = MakeBackend();
  Values a(1, 3, {1, 2, kNan});
  const Values b(1, 3, {10, 20, 30});
  backend->Add(a, b, a);
  EXPECT_THAT(a.values, ElementsAre(11, 22, IsNan()));
  Values c = Values::Unset(1, 3);
  backend->Add(b, b, c);
  EXPECT_THAT(c.values, ElementsAre(20, 40, 60));
  backend->Copy(b, c);
  EXPECT_EQ(c.values, b.values);
}

TEST(CpuBackendTest, AddsBiasAndSumsRows) {
  auto backend = MakeBackend();
  Values y(2, 3, {1, 2, 3, 4, 5, 6});
  backend->AddBias(Values(1, 3, {10, 20, 30}), y);
  EXPECT_THAT(y.values, ElementsAre(11, 22, 33, 14, 25, 36));
  Values sums(1, 3, {kNan, kNan, kNan});
  backend->SumRows(y, sums);
  EXPECT_THAT(sums.values, ElementsAre(25, 47, 69));
}

TEST(CpuBackendTest, SumsSquaresInDouble) {
  auto backend = MakeBackend();
  const auto sum_of = [&](std::vector<float> values) {
    double sum = -1;
    const int64_t size = static_cast<int64_t>(values.size());
    backend->SumSquares({values.data(), size, 1},
                        {reinterpret_cast<float*>(&sum), 1, 2});
    return sum;
  };
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({1, -2, 3}), 14);
  // The square of the greatest float is no float.
  EXPECT_EQ(sum_of({0x1p127f, 0, 0x1p127f}), 0x1p255);
  EXPECT_TRUE(std::isinf(sum_of({1, -kInfinity, 2})));
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, kNan})));
}

TEST(CpuBackendTest, SumsRowsFromTheFirstOn) {
  auto backend = MakeBackend();
  // In float32 1e8 + 1 is 1e8: only this order gives 1.
  Values sum(1, 1, {0});
  backend->SumRows(Values(4, 1, {1, 1e8, -1e8, 1}), sum);
  EXPECT_THAT(sum.values, ElementsAre(1));
}

TEST(CpuBackendTest, Relu) {
  auto backend = MakeBackend();
  Values x(1, 4, {-1, 0, 2, kNan});
  Values y(1, 4, {9, 9, 9, 9});
  backend->Relu(x, y);
  EXPECT_THAT(y.values, ElementsAre(0, 0, 2, testing::IsNan()));
  Values dy(1, 4, {5, 6, 7, 8});
  Values dx(1, 4, {9, 9, 9, 9});
  backend->ReluGradient(y, dy, dx);
  EXPECT_THAT(dx.values, ElementsAre(0, 0, 7, 0));
  backend->Relu(x, x);
  EXPECT_THAT(x.values, ElementsAre(0, 0, 2, testing::IsNan()));
  backend->ReluGradient(y, dy, dy);
  EXPECT_THAT(dy.values, ElementsAre(0, 0, 7, 0));
}

// tanh(ln 2) = (2 - 1/2) / (2 + 1/2) = 0.6, and its derivative 1 - 0.36.
TEST(CpuBackendTest, Tanh) {
  auto backend = MakeBackend();
  const float ln2 = std::log(2.0f);
  Values x(1, 6, {-ln2, 0, ln2, 1e4f, -1e4f, kNan});
  Values y(1, 6, {9, 9, 9, 9, 9, 9});
  backend->Tanh(x, y);
  EXPECT_THAT(y.values, ElementsAre(FloatEq(-0.6f), 0, FloatEq(0.6f), 1, -1,
                                    testing::IsNan()));
  Values dy(1, 6, {2, 3, 4, 5, 6, 7});
  Values dx(1, 6, {9, 9, 9, 9, 9, 9});
  backend->TanhGradient(y, dy, dx);
  EXPECT_THAT(dx.values, ElementsAre(FloatEq(1.28f), 3, FloatEq(2.56f), 0, 0,
                                     testing::IsNan()));
  backend->Tanh(x, x);
  EXPECT_TRUE(SameBits(x.values, y.values));
  backend->TanhGradient(y, dy, dy);
  EXPECT_TRUE(SameBits(dy.values, dx.values));
}

// sigmoid(ln 3) = 3 / 4 and sigmoid(-ln 3) = 1 / 4; the derivative is 3 / 16.
// sigmoid(-100) = exp(-100) but for one part in 1e43: 3.7201e-44, according to
// mpmath, a subnormal float32, which are 1.4e-45 apart.
TEST(CpuBackendTest, Sigmoid) {
  auto backend = MakeBackend();
  const float ln3 = std::log(3.0f);
  Values x(1, 8, {-ln3, 0, ln3, 1e4f, -1e4f, -100, kInfinity, kNan});
  Values y(1, 8, std::vector<float>(8, 9));
  backend->Sigmoid(x, y);
  EXPECT_THAT(y.values, ElementsAre(FloatEq(0.25f), 0.5f, FloatEq(0.75f), 1, 0,
                                    testing::FloatNear(3.7201e-44f, 1.5e-45f),
                                    1, testing::IsNan()));
  Values dy(1, 8, {16, 4, 32, 5, 6, 0, 7, 8});
  Values dx(1, 8, std::vector<float>(8, 9));
  backend->SigmoidGradient(y, dy, dx);
  EXPECT_THAT(dx.values, ElementsAre(FloatEq(3), 1, FloatEq(6), 0, 0, 0, 0,
                                     testing::IsNan()));
  backend->Sigmoid(x, x);
  EXPECT_TRUE(SameBits(x.values, y.values));
  backend->SigmoidGradient(y, dy, dy);
  EXPECT_TRUE(SameBits(dy.values, dx.values));
}

// The result of Dropout on ones, with `cols` columns for each of `positions`.
std::vector<float> DropOnes(const std::vector<int64_t>& positions, int64_t cols,
                            uint64_t key, float rate) {
  const int64_t rows = positions.size();
  const Values x(rows, cols, std::vector<float>(rows * cols, 1));
  Values y(rows, cols, std::vector<float>(rows * cols, kNan));
  MakeBackend()->Dropout(x, positions, key, rate, y);
  return y.values;
}

TEST(CpuBackendTest, DropoutFollowsPhilox) {
  const int64_t large = (int64_t{7} << 32) + 3;
  const std::vector<float> y =
      DropOnes({2, large}, 6, /*key=*/uint64_t{5} << 32 | 9, 0.375f);
  std::vector<float> expected;
  for (const std::array<uint32_t, 2> p :
       {std::array<uint32_t, 2>{2, 0}, std::array<uint32_t, 2>{3, 7}}) {
    const auto first = Philox4x32({p[0], p[1], 0, 0}, {9, 5});
    const auto second = Philox4x32({p[0], p[1], 1, 0}, {9, 5});
    for (const uint32_t word :
         {first[0], first[1], first[2], first[3], second[0], second[1]}) {
      // 0.375 * 2^32; 1 / (1 - 0.375) = 1.6.
      expected.push_back(word < 0x60000000 ? 0 : 1.6f);
    }
  }
  EXPECT_EQ(y, expected);
  // So that both outcomes are seen.
  EXPECT_THAT(y, testing::Contains(0));
  EXPECT_THAT(y, testing::Contains(1.6f));
}

TEST(CpuBackendTest, DropoutScalesDropsAndMayBeInPlace) {
  auto backend = MakeBackend();
  const std::vector<int64_t> positions = {4};
  const std::vector<float> mask = DropOnes(positions, 64, 1, 0.5f);
  Values x(1, 64, std::vector<float>(64));
  for (int i = 0; i < 64; ++i) {
    // Dropped values become 0 even if they are not finite.
    x.values[i] = mask[i] == 0 ? (i % 2 == 0 ? kNan : kInfinity) : i;
  }
  backend->Dropout(x, positions, 1, 0.5f, x);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(x.values[i], mask[i] == 0 ? 0 : 2 * i) << i;
  }
  EXPECT_THAT(DropOnes(positions, 64, 1, 0), Each(1));
}

// An element is 0 with the probability p = 0.3, else 1 / 0.7: mean 1, variance
// p / (1 - p). The bounds are five standard deviations of the estimates from
// n = 1e6 elements: of the mean sqrt(p / (1 - p) / n); of the share of
// neighbours that are both dropped, p^2 if they are independent, sqrt(p^2 (1 -
// p^2) (1 + 2 p) / n) at most, of pairs that overlap.
TEST(CpuBackendTest, DropoutIsAsOftenAsItSaysAndIndependent) {
  constexpr int64_t kRows = 1000, kCols = 1000;
  constexpr double kSize = kRows * kCols, kRate = 0.3;
  std::vector<int64_t> positions(kRows);
  for (int64_t i = 0; i < kRows; ++i) positions[i] = i;
  const std::vector<float> y = DropOnes(positions, kCols, 77, kRate);
  double sum = 0, squares = 0, beside = 0, below = 0, four_on = 0;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    sum += y[i];
    squares += y[i] * y[i];
    const auto both_dropped = [&](int64_t other) {
      return y[i] == 0 && y[other % (kRows * kCols)] == 0 ? 1 : 0;
    };
    beside += both_dropped(i + 1);
    four_on += both_dropped(i + 4);
    below += both_dropped(i + kCols);
  }
  const double mean = sum / kSize;
  EXPECT_NEAR(mean, 1, 5 * std::sqrt(kRate / (1 - kRate) / kSize));
  // With the share q kept it is q (1 - q) / (1 - p)^2, and errs by (1 - 2 p) /
  // (1 - p) times as much as the mean, q / (1 - p).
  EXPECT_NEAR(squares / kSize - mean * mean, kRate / (1 - kRate),
              5 * std::sqrt(kRate / (1 - kRate) / kSize) * (1 - 2 * kRate) /
                  (1 - kRate));
  const double p2 = kRate * kRate;
  const double bound = 5 * std::sqrt(p2 * (1 - p2) * (1 + 2 * kRate) / kSize);
  EXPECT_NEAR(beside / kSize, p2, bound);
  EXPECT_NEAR(four_on / kSize, p2, bound);
  EXPECT_NEAR(below / kSize, p2, bound);
}

TEST(CpuBackendTest, DropoutIsTheSameHoweverTheBatchIsCut) {
  std::vector<int64_t> all(200);
  for (int64_t i = 0; i < 200; ++i) all[i] = 1000 + i;
  const std::vector<float> whole = DropOnes(all, 37, 3, 0.5f);
  std::vector<float> cut;
  for (const auto& [begin, end] :
       {std::pair(0, 100), std::pair(100, 101), std::pair(101, 200)}) {
    const std::vector<float> part =
        DropOnes({all.begin() + begin, all.begin() + end}, 37, 3, 0.5f);
    cut.insert(cut.end(), part.begin(), part.end());
  }
  EXPECT_EQ(cut, whole);
}

TEST(CpuBackendTest, DropoutDiffersByKeyAndPosition) {
  const std::vector<float> y = DropOnes({3}, 64, 5, 0.5f);
  EXPECT_EQ(DropOnes({3}, 64, 5, 0.5f), y);
  EXPECT_NE(DropOnes({4}, 64, 5, 0.5f), y);
  EXPECT_NE(DropOnes({3 + (int64_t{1} << 32)}, 64, 5, 0.5f), y);
  EXPECT_NE(DropOnes({3}, 64, 6, 0.5f), y);
  EXPECT_NE(DropOnes({3}, 64, 5 + (uint64_t{1} << 32), 0.5f), y);
}

// Two examples of two classes. z = (0, ln 3): p = (1/4, 3/4), label 1, loss
// ln(4/3), dz = (1/4, -1/4) / 2. z = (0, 0): p = (1/2, 1/2), label 1, loss ln
// 2, dz = (1/2, -1/2) / 2; the first of equals is the prediction: wrong.
TEST(CpuBackendTest, SoftmaxCrossEntropyByHand) {
  auto backend = MakeBackend();
  Values z(2, 2, {0, std::log(3.0f), 0, 0});
  const std::vector<int32_t> labels = {1, 1};
  Values gradient(2, 2, {kNan, kNan, kNan, kNan});
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums =
      backend->SoftmaxCrossEntropy(z, {labels}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, std::log(4.0 / 3.0) + std::log(2.0), 1e-7);
  EXPECT_EQ(sums->correct, 1);
  const std::vector<float> expected = {0.125f, -0.125f, 0.25f, -0.25f};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(gradient.values[i], expected[i], 1e-7);
  }

  absl::StatusOr<LossSums> alone =
      backend->SoftmaxCrossEntropy(z, {labels}, nullptr);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->loss, sums->loss);
  EXPECT_EQ(alone->correct, 1);

  Matrix in_place = z;
  ASSERT_TRUE(backend->SoftmaxCrossEntropy(z, {labels}, &in_place).ok());
  EXPECT_EQ(z.values, gradient.values);
}

TEST(CpuBackendTest, SoftmaxCrossEntropyOfLargeLogits) {
  auto backend = MakeBackend();
  Values z(1, 3, {3e38f, 0, -3e38f});
  Values gradient(1, 3, {kNan, kNan, kNan});
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums = backend->SoftmaxCrossEntropy(z, {{0}}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 0);
  EXPECT_THAT(gradient.values, Each(0.0f));
  sums = backend->SoftmaxCrossEntropy(z, {{2}}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, 6e38, 1e32);
  EXPECT_THAT(gradient.values, ElementsAre(1, 0, -1));
}

TEST(CpuBackendTest, LossShowsWhatIsNotANumber) {
  auto backend = MakeBackend();
  for (float bad : {kNan, kInfinity, -kInfinity}) {
    for (int place = 0; place < 3; ++place) {
      Values z(1, 3, {0, 0, 0});
      z.values[place] = bad;
      const auto expect_not_finite = [&](absl::StatusOr<LossSums> sums) {
        ASSERT_TRUE(sums.ok());
        EXPECT_FALSE(std::isfinite(sums->loss)) << bad << " at " << place;
      };
      // The softmax of minus infinity is 0, but for the right class no loss.
      if (bad != -kInfinity || place == 1) {
        expect_not_finite(backend->SoftmaxCrossEntropy(z, {{1}}, nullptr));
      }
      expect_not_finite(backend->SigmoidCrossEntropy(z, {{1}}, nullptr));
      expect_not_finite(backend->MeanSquaredError(z, {{1}}, nullptr));
      expect_not_finite(backend->MeanAbsoluteError(z, {{1}}, nullptr));
      expect_not_finite(backend->Huber(z, {{1}}, 1, nullptr));
    }
  }
}

// One output. z = ln 3, label 1: sigmoid 3/4, loss ln(4/3), dz = -1/4; right.
// z = 0, label 1: sigmoid 1/2, loss ln 2, dz = -1/2; wrong, as 0 is not above
// 0. z = -ln 3, label 1: loss ln 4, dz = -3/4; wrong. z = -ln 3, label 0: loss
// ln(4/3), dz = 1/4; right. dz is by the mean over 4 examples.
TEST(CpuBackendTest, SigmoidCrossEntropyOfOneOutputByHand) {
  auto backend = MakeBackend();
  const float ln3 = std::log(3.0f);
  Values z(4, 1, {ln3, 0, -ln3, -ln3});
  const std::vector<int32_t> labels = {1, 1, 1, 0};
  Values gradient(4, 1, {kNan, kNan, kNan, kNan});
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums =
      backend->SigmoidCrossEntropy(z, {labels}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, 2 * std::log(4.0 / 3) + std::log(2) + std::log(4),
              1e-6);
  EXPECT_EQ(sums->correct, 2);
  EXPECT_EQ(sums->absolute_error, std::nullopt);
  EXPECT_THAT(gradient.values,
              ElementsAre(FloatEq(-0.0625f), -0.125f, FloatEq(-0.1875f),
                          FloatEq(0.0625f)));

  absl::StatusOr<LossSums> alone =
      backend->SigmoidCrossEntropy(z, {labels}, nullptr);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->loss, sums->loss);
  EXPECT_EQ(alone->correct, 2);

  Matrix in_place = z;
  ASSERT_TRUE(backend->SigmoidCrossEntropy(z, {labels}, &in_place).ok());
  EXPECT_EQ(z.values, gradient.values);
}

// Three outputs. z = (0, ln 3, -ln 3), label 1, so t = (0, 1, 0): losses
// (ln 2, ln(4/3), ln(4/3)), dz = (1/2, -1/4, 1/4) / 3; right. z = (0, 0, 0),
// label 1: losses ln 2, dz = (1/2, -1/2, 1/2) / 3; the first of equals is the
// prediction: wrong. dz is by the mean over 2 examples.
TEST(CpuBackendTest, SigmoidCrossEntropyOfSeveralOutputsByHand) {
  auto backend = MakeBackend();
  const float ln3 = std::log(3.0f);
  const Values z(2, 3, {0, ln3, -ln3, 0, 0, 0});
  Values gradient(2, 3, std::vector<float>(6, kNan));
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums =
      backend->SigmoidCrossEntropy(z, {{1, 1}}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, (4 * std::log(2) + 2 * std::log(4.0 / 3)) / 3, 1e-6);
  EXPECT_EQ(sums->correct, 1);
  EXPECT_THAT(
      gradient.values,
      ElementsAre(FloatEq(1.0f / 12), FloatEq(-1.0f / 24), FloatEq(1.0f / 24),
                  FloatEq(1.0f / 12), FloatEq(-1.0f / 12), FloatEq(1.0f / 12)));
}

// Far out the loss is |z| where the prediction is wrong and 0 where it is
// right; at z = 20 and label 1 it is log(1 + exp(-20)) = 2.0611536e-9 and dz =
// -exp(-20) / (1 + exp(-20)) = -2.0611536e-9, both according to mpmath.
TEST(CpuBackendTest, SigmoidCrossEntropyOfLargeLogits) {
  auto backend = MakeBackend();
  struct Case {
    float z;
    int32_t label;
    double loss;
    float dz;
  };
  for (const Case& c :
       {Case{1e4f, 1, 0, 0}, Case{1e4f, 0, 1e4, 1}, Case{-1e4f, 0, 0, 0},
        Case{-1e4f, 1, 1e4, -1}, Case{3e38f, 0, 3e38f, 1},
        Case{20, 1, 2.0611536e-9, -2.0611536e-9f}}) {
    Values z(1, 1, {c.z});
    Matrix dz = z;
    absl::StatusOr<LossSums> sums =
        backend->SigmoidCrossEntropy(z, {{c.label}}, &dz);
    ASSERT_TRUE(sums.ok());
    EXPECT_NEAR(sums->loss, c.loss, 1e-7 * c.loss) << c.z;
    EXPECT_THAT(z.values, ElementsAre(FloatEq(c.dz))) << c.z;
  }
}

// One output: z = 2.5, label 4: error -1.5, dz = 2 (-1.5) / 2. z = -1, label 0:
// error -1, dz = 2 (-1) / 2.
TEST(CpuBackendTest, MeanSquaredErrorOfOneOutputByHand) {
  auto backend = MakeBackend();
  Values z(2, 1, {2.5f, -1});
  Values gradient(2, 1, {kNan, kNan});
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums = backend->MeanSquaredError(z, {{4, 0}}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 2.25 + 1);
  EXPECT_EQ(sums->correct, std::nullopt);
  EXPECT_EQ(sums->absolute_error, 1.5 + 1);
  EXPECT_EQ(sums->squared_error, 2.25 + 1);
  EXPECT_THAT(gradient.values, ElementsAre(-1.5f, -1));

  absl::StatusOr<LossSums> alone =
      backend->MeanSquaredError(z, {{4, 0}}, nullptr);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->loss, sums->loss);
  EXPECT_EQ(alone->absolute_error, sums->absolute_error);

  Matrix in_place = z;
  ASSERT_TRUE(backend->MeanSquaredError(z, {{4, 0}}, &in_place).ok());
  EXPECT_EQ(z.values, gradient.values);
}

// Four outputs, t = (0, 0, 1, 0): z = (1, 0, 2, -2): errors (1, 0, 1, -2), mean
// square 6/4, mean distance 1, dz = 2 errors / (2 x 4); right. z = (1, 0, 1,
// 0): errors (1, 0, 0, 0); the first of equals is the prediction: wrong.
TEST(CpuBackendTest, MeanSquaredErrorOfSeveralOutputsByHand) {
  auto backend = MakeBackend();
  const Values z(2, 4, {1, 0, 2, -2, 1, 0, 1, 0});
  Values gradient(2, 4, std::vector<float>(8, kNan));
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums = backend->MeanSquaredError(z, {{2, 2}}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 1.5 + 0.25);
  EXPECT_EQ(sums->correct, 1);
  EXPECT_EQ(sums->absolute_error, 1 + 0.25);
  EXPECT_THAT(gradient.values,
              ElementsAre(0.25f, 0, 0.25f, -0.5f, 0.25f, 0, 0, 0));
}

// In float32 the square of the error would be infinite.
// Errors (0.5, -1) and (0, 2): losses (0.25 + 1) / 2 and (0 + 4) / 2, which
// count 2 and 0.5; dz = 2 w error / 4.
TEST(CpuBackendTest, MeanSquaredErrorOfWeightedTargetsByHand) {
  const auto backend = MakeBackend();
  const std::vector<float> outputs = {1, 2, 3, 4};
  const std::vector<float> targets = {0.5f, 3, 3, 2};
  const std::vector<float> weights = {2, 0.5f};
  std::vector<float> dz_values(4);
  Matrix dz = {dz_values.data(), 2, 2};
  const auto sums = backend->MeanSquaredError({outputs.data(), 2, 2},
                                              {{}, targets, weights}, &dz);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_DOUBLE_EQ(sums->loss, 2 * 0.625 + 0.5 * 2);
  EXPECT_FALSE(sums->correct.has_value());
  EXPECT_DOUBLE_EQ(*sums->absolute_error, 0.75 + 1);
  EXPECT_DOUBLE_EQ(*sums->squared_error, 0.625 + 2);
  EXPECT_THAT(dz_values, ElementsAre(0.5f, -1, 0, 0.5f));
}

// The same errors, (0.5, -1) and (0, 2), with weights 2 and 0.5: losses 1.5 / 2
// and 2 / 2; dz = w sign(error) / 4.
TEST(CpuBackendTest, MeanAbsoluteErrorOfWeightedTargetsByHand) {
  const auto backend = MakeBackend();
  const std::vector<float> outputs = {1, 2, 3, 4};
  const std::vector<float> targets = {0.5f, 3, 3, 2};
  const std::vector<float> weights = {2, 0.5f};
  std::vector<float> dz_values(4);
  Matrix dz = {dz_values.data(), 2, 2};
  const auto sums = backend->MeanAbsoluteError({outputs.data(), 2, 2},
                                               {{}, targets, weights}, &dz);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_DOUBLE_EQ(sums->loss, 2 * 0.75 + 0.5 * 1);
  EXPECT_FALSE(sums->correct.has_value());
  EXPECT_DOUBLE_EQ(*sums->absolute_error, 0.75 + 1);
  EXPECT_DOUBLE_EQ(*sums->squared_error, 0.625 + 2);
  EXPECT_THAT(dz_values, ElementsAre(0.5f, -0.5f, 0, 0.125f));
}

// With delta 0.75: (0.5^2 / 2 + 0.75 (1 - 0.375)) / 2 and 0.75 (2 - 0.375) / 2;
// dz = w error / 4, with errors cut at 0.75. With delta 2 no error is beyond
// it, and the loss is half the squared error.
TEST(CpuBackendTest, HuberOfWeightedTargetsByHand) {
  const auto backend = MakeBackend();
  const std::vector<float> outputs = {1, 2, 3, 4};
  const std::vector<float> targets = {0.5f, 3, 3, 2};
  const std::vector<float> weights = {2, 0.5f};
  std::vector<float> dz_values(4);
  Matrix dz = {dz_values.data(), 2, 2};
  auto sums = backend->Huber({outputs.data(), 2, 2}, {{}, targets, weights},
                             0.75f, &dz);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_DOUBLE_EQ(sums->loss, (0.125 + 0.46875) + 0.5 * 1.21875 / 2);
  EXPECT_FALSE(sums->correct.has_value());
  EXPECT_DOUBLE_EQ(*sums->absolute_error, 0.75 + 1);
  EXPECT_DOUBLE_EQ(*sums->squared_error, 0.625 + 2);
  EXPECT_THAT(dz_values, ElementsAre(0.25f, -0.375f, 0, 0.09375f));
  sums = backend->Huber({outputs.data(), 2, 2}, {{}, targets, weights}, 2,
                        nullptr);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_DOUBLE_EQ(sums->loss, (2 * 0.625 + 0.5 * 2) / 2);
}

// With several outputs, classes are predicted, as with the squared error.
TEST(CpuBackendTest, DistancesOfSeveralOutputsPredictClasses) {
  const auto backend = MakeBackend();
  const Values z(2, 4, {1, 0, 2, -2, 1, 0, 1, 0});
  const auto absolute = backend->MeanAbsoluteError(z, {{2, 2}}, nullptr);
  ASSERT_TRUE(absolute.ok());
  EXPECT_EQ(absolute->correct, 1);
  EXPECT_EQ(absolute->loss, 1 + 0.25);
  const auto huber = backend->Huber(z, {{2, 2}}, 1, nullptr);
  ASSERT_TRUE(huber.ok());
  EXPECT_EQ(huber->correct, 1);
  // Errors (1, 0, 1, -2) and (1, 0, 0, 0).
  EXPECT_EQ(huber->loss, (0.5 + 0.5 + 1.5) / 4 + 0.5 / 4);
}

// Logits 0: the loss is log(2) whatever the target, dz = w (1/2 - t) / 2.
TEST(CpuBackendTest, SigmoidCrossEntropyOfWeightedTargetsByHand) {
  const auto backend = MakeBackend();
  const std::vector<float> outputs = {0, 0};
  const std::vector<float> targets = {0.25f, 1};
  const std::vector<float> weights = {1, 4};
  std::vector<float> dz_values(2);
  Matrix dz = {dz_values.data(), 2, 1};
  const auto sums = backend->SigmoidCrossEntropy({outputs.data(), 2, 1},
                                                 {{}, targets, weights}, &dz);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_DOUBLE_EQ(sums->loss, 5 * std::log(2.0));
  EXPECT_FALSE(sums->correct.has_value());
  EXPECT_THAT(dz_values, ElementsAre(0.125f, -1));
}

// A weight of 3 counts like an example that occurs three times, in a batch of
// two.
TEST(CpuBackendTest, SoftmaxCrossEntropyOfWeightedExamples) {
  const auto backend = MakeBackend();
  const std::vector<float> outputs = {1, 2, -1, 0.5f};
  const std::vector<int32_t> labels = {1, 0};
  const std::vector<float> weights = {3, 0};
  std::vector<float> dz_values(4);
  Matrix dz = {dz_values.data(), 2, 2};
  const auto sums = backend->SoftmaxCrossEntropy({outputs.data(), 2, 2},
                                                 {labels, {}, weights}, &dz);
  ASSERT_TRUE(sums.ok()) << sums.status();
  std::vector<float> alone_values(2);
  Matrix alone_dz = {alone_values.data(), 1, 2};
  const auto alone =
      backend->SoftmaxCrossEntropy({outputs.data(), 1, 2}, {{1}}, &alone_dz);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_DOUBLE_EQ(sums->loss, 3 * alone->loss);
  EXPECT_EQ(*sums->correct, 1);
  EXPECT_FLOAT_EQ(dz_values[0], 1.5f * alone_values[0]);
  EXPECT_FLOAT_EQ(dz_values[1], 1.5f * alone_values[1]);
  EXPECT_EQ(dz_values[2], 0);
  EXPECT_EQ(dz_values[3], 0);
}

TEST(CpuBackendTest, MeanSquaredErrorOfLargeOutputs) {
  auto backend = MakeBackend();
  Values z(1, 1, {1e30f});
  Matrix dz = z;
  absl::StatusOr<LossSums> sums = backend->MeanSquaredError(z, {{0}}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, 1e60, 1e53);
  EXPECT_NEAR(*sums->absolute_error, 1e30, 1e23);
  EXPECT_THAT(z.values, ElementsAre(FloatEq(2e30f)));
}

// A single class, and batches without examples.
TEST(CpuBackendTest, LossesOfOddShapes) {
  auto backend = MakeBackend();
  Values one(1, 1, {5});
  Matrix dz = one;
  absl::StatusOr<LossSums> sums = backend->SoftmaxCrossEntropy(one, {{0}}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 0);
  EXPECT_EQ(sums->correct, 1);
  EXPECT_THAT(one.values, ElementsAre(0));
  for (const int64_t cols : {1, 3}) {
    const ConstMatrix none = {nullptr, 0, cols};
    for (const auto& empty : {backend->SoftmaxCrossEntropy(none, {}, nullptr),
                              backend->SigmoidCrossEntropy(none, {}, nullptr),
                              backend->MeanSquaredError(none, {}, nullptr)}) {
      ASSERT_TRUE(empty.ok());
      EXPECT_EQ(empty->loss, 0);
    }
  }
}

// Pulled parameters may be at any address within a message.
TEST(CpuBackendTest, BitsDoNotDependOnAlignment) {
  auto backend = MakeBackend();
  const int64_t m = 33, k = 129, n = 65;
  std::vector<float> first;
  for (int shift = 0; shift < 8; ++shift) {
    std::vector<float> a(shift + m * k), b(shift + k * n), c(shift + m * n);
    for (int64_t i = 0; i < m * k; ++i) a[shift + i] = 1.0f / (3 + i % 101);
    for (int64_t i = 0; i < k * n; ++i) b[shift + i] = 1.0f / (7 + i % 97);
    backend->MatMul(Form::kPlain, {a.data() + shift, m, k}, Form::kPlain,
                    {b.data() + shift, k, n}, {c.data() + shift, m, n});
    c.erase(c.begin(), c.begin() + shift);
    if (shift == 0) first = c;
    EXPECT_EQ(c, first) << "shifted by " << shift;
  }
}

}  // namespace
}  // namespace holdfast
