#include "worker/backend/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::unique_ptr<CpuBackend> MakeBackend() {
  absl::StatusOr<std::unique_ptr<CpuBackend>> backend = CpuBackend::Create({});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

// A matrix with its memory.
struct Values {
  Values(int64_t rows, int64_t cols, std::vector<float> values)
      : rows(rows), cols(cols), values(std::move(values)) {}
  operator Matrix() { return {values.data(), rows, cols}; }
  operator ConstMatrix() const { return {values.data(), rows, cols}; }

  int64_t rows;
  int64_t cols;
  std::vector<float> values;
};

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
  // More bytes than there are numbers for.
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

TEST(CpuBackendTest, AddsBiasAndSumsRows) {
  auto backend = MakeBackend();
  Values y(2, 3, {1, 2, 3, 4, 5, 6});
  backend->AddBias(Values(1, 3, {10, 20, 30}), y);
  EXPECT_THAT(y.values, ElementsAre(11, 22, 33, 14, 25, 36));
  Values sums(1, 3, {kNan, kNan, kNan});
  backend->SumRows(y, sums);
  EXPECT_THAT(sums.values, ElementsAre(25, 47, 69));
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

// Two examples of two classes. z = (0, ln 3): p = (1/4, 3/4), label 1, loss
// ln(4/3), dz = (1/4, -1/4) / 2. z = (0, 0): p = (1/2, 1/2), label 1, loss ln
// 2, dz = (1/2, -1/2) / 2; the first of equals is the prediction: wrong.
TEST(CpuBackendTest, SoftmaxCrossEntropyByHand) {
  auto backend = MakeBackend();
  Values z(2, 2, {0, std::log(3.0f), 0, 0});
  const std::vector<int32_t> labels = {1, 1};
  Values gradient(2, 2, {kNan, kNan, kNan, kNan});
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums = backend->SoftmaxCrossEntropy(z, labels, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, std::log(4.0 / 3.0) + std::log(2.0), 1e-7);
  EXPECT_EQ(sums->correct, 1);
  const std::vector<float> expected = {0.125f, -0.125f, 0.25f, -0.25f};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(gradient.values[i], expected[i], 1e-7);
  }

  absl::StatusOr<LossSums> alone =
      backend->SoftmaxCrossEntropy(z, labels, nullptr);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->loss, sums->loss);
  EXPECT_EQ(alone->correct, 1);

  Matrix in_place = z;
  ASSERT_TRUE(backend->SoftmaxCrossEntropy(z, labels, &in_place).ok());
  EXPECT_EQ(z.values, gradient.values);
}

TEST(CpuBackendTest, SoftmaxCrossEntropyOfLargeLogits) {
  auto backend = MakeBackend();
  Values z(1, 3, {3e38f, 0, -3e38f});
  Values gradient(1, 3, {kNan, kNan, kNan});
  Matrix dz = gradient;
  absl::StatusOr<LossSums> sums = backend->SoftmaxCrossEntropy(z, {0}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 0);
  EXPECT_THAT(gradient.values, Each(0.0f));
  sums = backend->SoftmaxCrossEntropy(z, {2}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_NEAR(sums->loss, 6e38, 1e32);
  EXPECT_THAT(gradient.values, ElementsAre(1, 0, -1));
}

TEST(CpuBackendTest, LossShowsWhatIsNotANumber) {
  auto backend = MakeBackend();
  const float infinity = std::numeric_limits<float>::infinity();
  for (float bad : {kNan, infinity}) {
    for (int place = 0; place < 3; ++place) {
      Values z(1, 3, {0, 0, 0});
      z.values[place] = bad;
      absl::StatusOr<LossSums> sums =
          backend->SoftmaxCrossEntropy(z, {1}, nullptr);
      ASSERT_TRUE(sums.ok());
      EXPECT_FALSE(std::isfinite(sums->loss)) << bad << " at " << place;
    }
  }
}

// Gradients of one class and examples of none.
TEST(CpuBackendTest, SoftmaxCrossEntropyOfOddShapes) {
  auto backend = MakeBackend();
  Values one(1, 1, {5});
  Matrix dz = one;
  absl::StatusOr<LossSums> sums = backend->SoftmaxCrossEntropy(one, {0}, &dz);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 0);
  EXPECT_EQ(sums->correct, 1);
  EXPECT_THAT(one.values, ElementsAre(0));
  sums = backend->SoftmaxCrossEntropy(ConstMatrix{nullptr, 0, 3}, {}, nullptr);
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(sums->loss, 0);
}

// Pulled parameters lie wherever the message put them.
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
