// SPDX-License-Identifier: Apache-2.0

// Operations on bags, pairs of vectors and columns. Formulas are those of
// backend.h, computed here in double unless results must be exact.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "common/base/simd.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNan;
using Values = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Bags on the host, made bag by bag.
class HostBags {
 public:
  explicit HostBags(int64_t num_rows) : num_rows_(num_rows) {}

  // A bag of these rows; weights are for all bags or for none.
  void Add(const std::vector<uint32_t>& rows, const Values& weights = {}) {
    const uint32_t bag = static_cast<uint32_t>(offsets_.size()) - 1;
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    weights_.insert(weights_.end(), weights.begin(), weights.end());
    bags_.insert(bags_.end(), rows.size(), bag);
    offsets_.push_back(static_cast<uint32_t>(rows_.size()));
  }

  Bags Get() {
    uses_.clear();
    begins_.assign(1, 0);
    for (int64_t r = 0; r < num_rows_; ++r) {
      for (size_t k = 0; k < rows_.size(); ++k) {
        if (rows_[k] == r) uses_.push_back(static_cast<uint32_t>(k));
      }
      begins_.push_back(static_cast<uint32_t>(uses_.size()));
    }
    Bags bags;
    bags.rows = rows_;
    bags.bags = bags_;
    bags.weights = weights_;
    bags.offsets = offsets_;
    bags.uses = uses_;
    bags.begins = begins_;
    return bags;
  }

 private:
  const int64_t num_rows_;
  std::vector<uint32_t> rows_, bags_, offsets_ = {0}, uses_, begins_;
  Values weights_;
};

Values RandomValues(int64_t size, std::mt19937* random) {
  Values values(size);
  for (float& value : values) {
    value = static_cast<float>((*random)() >> 8) / (1 << 23) - 1;
  }
  return values;
}

Matrix Of(Values& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols};
}

// With the vector instructions of each kind of CPU that this one supports.
class BagsTest : public ::testing::TestWithParam<Simd> {
 protected:
  DeviceBags Upload(const Bags& bags) {
    return *backend_->UploadBags(bags, &staging_);
  }

  std::unique_ptr<CpuBackend> backend_ =
      *CpuBackend::Create({.simd = GetParam()});
  BagsBuffer staging_;
};

INSTANTIATE_TEST_SUITE_P(Simd, BagsTest,
                         ::testing::ValuesIn(SupportedSimd().begin(),
                                             SupportedSimd().end()));

TEST_P(BagsTest, UploadsAreViews) {
  HostBags host(3);
  host.Add({2, 0}, {1, 2});
  host.Add({}, {});
  const Bags bags = host.Get();
  const DeviceBags view = Upload(bags);
  EXPECT_EQ(view.rows, bags.rows.data());
  EXPECT_EQ(view.weights, bags.weights.data());
  EXPECT_EQ(view.begins, bags.begins.data());
  EXPECT_EQ(view.num_uses, 2);
  EXPECT_EQ(view.num_bags, 2);
  EXPECT_EQ(view.num_rows, 3);
  EXPECT_EQ(staging_.capacity(), 0);
}

// Rows (1, 2), (3, 4), (5, 6), of which the last has no use; bags {0, 1, 0}, {}
// and {1}.
TEST_P(BagsTest, SumsByHand) {
  HostBags host(3);
  host.Add({0, 1, 0});
  host.Add({});
  host.Add({1});
  const Bags of_host = host.Get();
  const DeviceBags bags = Upload(of_host);
  EXPECT_EQ(bags.weights, nullptr);
  Values rows = {1, 2, 3, 4, 5, 6};
  Values y(6, kNan);
  backend_->SumBags(bags, Of(rows, 2), Of(y, 2));
  // 1 + 3 + 1, 2 + 4 + 2; nothing; row 1.
  EXPECT_THAT(y, ElementsAre(5, 8, 0, 0, 3, 4));

  // Row 0 is twice in bag 0, row 1 in bags 0 and 2.
  Values dy = {1, 10, 100, 1000, 2, 20};
  Values drows(6, kNan);
  backend_->SumBagsGradient(bags, Of(dy, 2), Of(drows, 2));
  EXPECT_THAT(drows, ElementsAre(2, 20, 3, 30, 0, 0));
}

TEST_P(BagsTest, WeightsByHand) {
  HostBags host(2);
  host.Add({0, 1, 0}, {2, -1, 0.5});
  host.Add({1}, {3});
  const Bags of_host = host.Get();
  const DeviceBags bags = Upload(of_host);
  Values rows = {2, 5};
  Values y(2);
  backend_->SumBags(bags, Of(rows, 1), Of(y, 1));
  // 2 2 - 5 + 0.5 2; 3 5.
  EXPECT_THAT(y, ElementsAre(0, 15));
  Values dy = {10, 100};
  Values drows(2);
  backend_->SumBagsGradient(bags, Of(dy, 1), Of(drows, 1));
  // (2 + 0.5) 10; -10 + 3 100.
  EXPECT_THAT(drows, ElementsAre(25, 290));
}

TEST_P(BagsTest, MergedBagsByHand) {
  HostBags host(3);
  for (const uint32_t row : {0, 1, 2, 2}) host.Add({row});
  const Bags of_host = host.Get();
  const DeviceBags bags = Upload(of_host).Merged(2);
  EXPECT_EQ(bags.num_merged_bags(), 2);
  Values rows = {1, 10, 100};
  Values y(2);
  backend_->SumBags(bags, Of(rows, 1), Of(y, 1));
  EXPECT_THAT(y, ElementsAre(11, 200));
  Values dy = {3, 4};
  Values drows(3);
  backend_->SumBagsGradient(bags, Of(dy, 1), Of(drows, 1));
  EXPECT_THAT(drows, ElementsAre(3, 3, 8));
}

// x = (1, 2), (3, 4), 2 (5, 6): their products by pairs are 11, 34 and 78.
TEST_P(BagsTest, PairsOfBagsByHand) {
  HostBags host(3);
  host.Add({0, 1, 2}, {1, 1, 2});
  host.Add({1}, {5});
  host.Add({});
  const Bags of_host = host.Get();
  const DeviceBags bags = Upload(of_host);
  Values rows = {1, 2, 3, 4, 5, 6};
  Values sums(6, kNan);
  Values y(3, kNan);
  backend_->PairwiseBags(bags, Of(rows, 2), Of(sums, 2), Of(y, 1));
  EXPECT_THAT(sums, ElementsAre(14, 18, 15, 20, 0, 0));
  // One vector, and none, have no pairs.
  EXPECT_THAT(y, ElementsAre(11 + 34 + 78, 0, 0));

  Values dy = {2, 7, kNan};
  Values drows = {100, 0, 0, 0, 0, 0};
  backend_->AddPairwiseBagsGradient(bags, Of(rows, 2), Of(sums, 2), Of(dy, 1),
                                    Of(drows, 2));
  // By row 0: 2 ((3, 4) + (10, 12)); by row 1: 2 ((1, 2) + (10, 12)), and
  // nothing of the bag that it is alone in; by row 2: 2 2 ((1, 2) + (3, 4)).
  EXPECT_THAT(drows, ElementsAre(126, 32, 22, 28, 16, 24));
}

// Vectors (1, 2), (3, 4), (5, 6) and 10 times as much.
TEST_P(BagsTest, DotPairsByHand) {
  Values x = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};
  Values y(6, kNan);
  backend_->DotPairs(Of(x, 6), 3, Of(y, 3));
  // (1, 0), (2, 0), (2, 1).
  EXPECT_THAT(y, ElementsAre(11, 17, 39, 1100, 1700, 3900));
  Values dy = {1, 10, 100, 0, 0, 1};
  Values dx(12, kNan);
  backend_->DotPairsGradient(Of(x, 6), 3, Of(dy, 3), Of(dx, 6));
  // (3, 4) + 10 (5, 6); (1, 2) + 100 (5, 6); 10 (1, 2) + 100 (3, 4). Then the
  // other of the last pair.
  EXPECT_THAT(dx,
              ElementsAre(53, 64, 501, 602, 310, 420, 0, 0, 50, 60, 30, 40));
}

TEST_P(BagsTest, AVectorAloneHasNoPairs) {
  Values x = {1, 2, 3};
  backend_->DotPairs(Of(x, 3), 1, {nullptr, 1, 0});
  Values dx(3, kNan);
  backend_->DotPairsGradient(Of(x, 3), 1, {nullptr, 1, 0}, Of(dx, 3));
  EXPECT_THAT(dx, ElementsAre(0, 0, 0));
}

TEST_P(BagsTest, Columns) {
  Values x = {1, 2, 3, 4, 5, 6};
  Values y(8, 9);
  backend_->CopyColumns(Of(x, 3), 1, 2, Of(y, 4), 1);
  EXPECT_THAT(y, ElementsAre(9, 2, 3, 9, 9, 5, 6, 9));
  backend_->AddColumns(Of(x, 3), 0, 1, Of(y, 4), 3);
  EXPECT_THAT(y, ElementsAre(9, 2, 3, 10, 9, 5, 6, 13));
  backend_->CopyColumns(Of(x, 3), 3, 0, Of(y, 4), 4);
  EXPECT_THAT(y, ElementsAre(9, 2, 3, 10, 9, 5, 6, 13));
}

// Values that are not finite reach the results that depend on them, and no
// others.
TEST_P(BagsTest, NansFlow) {
  HostBags host(3);
  host.Add({0, 1});
  host.Add({2});
  const Bags of_host = host.Get();
  const DeviceBags bags = Upload(of_host);
  Values rows = {kNan, 1, 2};
  Values y(2), sums(2), pairs(2), drows(3);
  backend_->SumBags(bags, Of(rows, 1), Of(y, 1));
  EXPECT_THAT(y, ElementsAre(IsNan(), 2));
  backend_->PairwiseBags(bags, Of(rows, 1), Of(sums, 1), Of(pairs, 1));
  EXPECT_THAT(pairs, ElementsAre(IsNan(), 0));
  Values dy = {1, kNan};
  backend_->SumBagsGradient(bags, Of(dy, 1), Of(drows, 1));
  EXPECT_THAT(drows, ElementsAre(1, 1, IsNan()));

  // The last of five vectors of one value is infinite: products with it are
  // infinite, but its own gradient is finite.
  Values x = {1, 2, 3, 4, kInfinity};
  Values dots(10);
  backend_->DotPairs(Of(x, 5), 5, Of(dots, 10));
  EXPECT_THAT(dots, ElementsAre(2, 3, 6, 4, 8, 12, kInfinity, kInfinity,
                                kInfinity, kInfinity));
  Values ones(10, 1);
  Values dx(5);
  backend_->DotPairsGradient(Of(x, 5), 5, Of(ones, 10), Of(dx, 5));
  EXPECT_THAT(dx, ElementsAre(kInfinity, kInfinity, kInfinity, kInfinity, 10));
}

// 1e8 + 1 - 1e8 is 0 in this order, and 1 in others.
TEST_P(BagsTest, SumsAreInTheOrderOfUses) {
  HostBags host(3);
  host.Add({0, 1, 2});
  const Bags of_host = host.Get();
  for (const int64_t cols : {1, 5, 21, 70}) {
    SCOPED_TRACE(cols);
    Values rows(3 * cols);
    for (int64_t j = 0; j < cols; ++j) {
      rows[j] = 1e8f;
      rows[cols + j] = 1;
      rows[2 * cols + j] = -1e8f;
    }
    Values y(cols, kNan);
    backend_->SumBags(Upload(of_host), Of(rows, cols), Of(y, cols));
    EXPECT_THAT(y, ::testing::Each(0));
  }
}

// Numbers of columns that need vectors of every length, with and without a
// remainder.
constexpr int64_t kCols[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 67, 101};

struct RandomBags {
  RandomBags(bool weighted, uint32_t seed) : random(seed) {
    // Some rows twice in a bag, every fifth in none.
    for (int64_t b = 0; b < kBags; ++b) {
      std::vector<uint32_t> of_bag(random() % 6);
      Values weights;
      for (uint32_t& row : of_bag) {
        row = random() % (kRows / 5) * 5 + random() % 4;
        if (weighted) weights.push_back(RandomValues(1, &random)[0]);
      }
      host.Add(of_bag, weights);
    }
    bags = host.Get();
  }

  float weight(int64_t k) const {
    return bags.weights.empty() ? 1 : bags.weights[k];
  }

  static constexpr int64_t kBags = 60;
  static constexpr int64_t kRows = 25;
  std::mt19937 random;
  HostBags host{kRows};
  Bags bags;
};

TEST_P(BagsTest, RandomBagsAreThoseOfTheFormulas) {
  for (const bool weighted : {false, true}) {
    for (const int64_t merged : {1, 3, 60}) {
      for (const int64_t cols : kCols) {
        SCOPED_TRACE(::testing::Message()
                     << "weighted " << weighted << " merged " << merged
                     << " columns " << cols);
        RandomBags made(weighted, static_cast<uint32_t>(cols));
        const DeviceBags bags = Upload(made.bags).Merged(merged);
        const int64_t num_bags = bags.num_merged_bags();
        Values rows = RandomValues(RandomBags::kRows * cols, &made.random);
        Values dy = RandomValues(num_bags * cols, &made.random);
        // Computed in float32 and in the order of uses: the same bits.
        Values y(num_bags * cols), drows(rows.size());
        std::vector<double> pairs(num_bags);
        std::vector<double> squares(num_bags * cols);
        for (int64_t k = 0; k < bags.num_uses; ++k) {
          const int64_t row = made.bags.rows[k];
          const int64_t bag = made.bags.bags[k] / merged;
          for (int64_t j = 0; j < cols; ++j) {
            const float x = made.weight(k) * rows[row * cols + j];
            y[bag * cols + j] += x;
            squares[bag * cols + j] += double{x} * x;
            drows[row * cols + j] += made.weight(k) * dy[bag * cols + j];
          }
        }
        Values result(y.size(), kNan);
        backend_->SumBags(bags, Of(rows, cols), Of(result, cols));
        EXPECT_EQ(result, y);
        Values gradient(drows.size(), kNan);
        backend_->SumBagsGradient(bags, Of(dy, cols), Of(gradient, cols));
        EXPECT_EQ(gradient, drows);

        Values sums(y.size(), kNan), products(num_bags, kNan);
        backend_->PairwiseBags(bags, Of(rows, cols), Of(sums, cols),
                               Of(products, 1));
        EXPECT_EQ(sums, y);
        Values slopes = RandomValues(num_bags, &made.random);
        std::vector<double> by_rows(rows.begin(), rows.end());
        for (int64_t b = 0; b < num_bags; ++b) {
          double expected = 0;
          double magnitude = 1;
          for (int64_t j = 0; j < cols; ++j) {
            const double sum = y[b * cols + j];
            expected += (sum * sum - squares[b * cols + j]) / 2;
            magnitude += sum * sum + squares[b * cols + j];
          }
          EXPECT_NEAR(products[b], expected, 1e-6 * magnitude);
        }
        for (int64_t k = 0; k < bags.num_uses; ++k) {
          const int64_t row = made.bags.rows[k];
          const int64_t bag = made.bags.bags[k] / merged;
          const double weight = made.weight(k);
          for (int64_t j = 0; j < cols; ++j) {
            const double others =
                y[bag * cols + j] - weight * rows[row * cols + j];
            by_rows[row * cols + j] += slopes[bag] * weight * others;
          }
        }
        Values added = rows;
        backend_->AddPairwiseBagsGradient(bags, Of(rows, cols), Of(sums, cols),
                                          Of(slopes, 1), Of(added, cols));
        for (size_t i = 0; i < added.size(); ++i) {
          ASSERT_NEAR(added[i], by_rows[i], 1e-4) << "value " << i;
        }
      }
    }
  }
}

TEST_P(BagsTest, DotPairsAreThoseOfTheFormula) {
  std::mt19937 random(5);
  for (const int64_t n : {2, 3, 4, 5, 6, 16, 17, 18, 27, 33, 40}) {
    for (const int64_t d : kCols) {
      SCOPED_TRACE(::testing::Message() << n << " vectors of " << d);
      constexpr int64_t kExamples = 3;
      const int64_t pairs = n * (n - 1) / 2;
      Values x = RandomValues(kExamples * n * d, &random);
      Values dy = RandomValues(kExamples * pairs, &random);
      Values y, dx(x.size());
      for (int64_t i = 0; i < kExamples; ++i) {
        const float* const vectors = &x[i * n * d];
        for (int64_t p = 0; p < n; ++p) {
          for (int64_t q = 0; q < p; ++q) {
            float sum = 0;
            for (int64_t j = 0; j < d; ++j) {
              sum += vectors[p * d + j] * vectors[q * d + j];
            }
            y.push_back(sum);
          }
          for (int64_t q = 0; q < n; ++q) {
            if (q == p) continue;
            const int64_t a = std::max(p, q);
            const int64_t b = std::min(p, q);
            const float slope = dy[i * pairs + a * (a - 1) / 2 + b];
            for (int64_t j = 0; j < d; ++j) {
              dx[(i * n + p) * d + j] += slope * vectors[q * d + j];
            }
          }
        }
      }
      // Nothing is written after the results.
      Values made(y.size() + 20, -7);
      backend_->DotPairs(Of(x, n * d), n, {made.data(), kExamples, pairs});
      EXPECT_EQ(Values(made.begin(), made.end() - 20), y);
      EXPECT_EQ(Values(made.end() - 20, made.end()), Values(20, -7));
      Values gradient(dx.size(), kNan);
      backend_->DotPairsGradient(Of(x, n * d), n, {dy.data(), kExamples, pairs},
                                 Of(gradient, n * d));
      EXPECT_EQ(gradient, dx);
    }
  }
}

// Compares `gradient` with the differences of f, a weighted sum of outputs, for
// each value; for products of pairs they are exact except for rounding.
void CheckGradient(Values* values, const std::function<double()>& f,
                   const Values& gradient) {
  constexpr float kStep = 1.0f / 16;
  for (size_t i = 0; i < values->size(); ++i) {
    const float value = (*values)[i];
    (*values)[i] = value + kStep;
    const double above = f();
    (*values)[i] = value - kStep;
    const double below = f();
    (*values)[i] = value;
    ASSERT_NEAR(gradient[i], (above - below) / (2 * double{kStep}), 1e-3)
        << "value " << i;
  }
}

double Dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

TEST_P(BagsTest, GradientsAreDifferences) {
  for (const bool weighted : {false, true}) {
    for (const int64_t merged : {1, 4}) {
      constexpr int64_t kColumns = 6;
      RandomBags made(weighted, 11);
      const DeviceBags bags = Upload(made.bags).Merged(merged);
      const int64_t num_bags = bags.num_merged_bags();
      Values rows = RandomValues(RandomBags::kRows * kColumns, &made.random);
      Values dy = RandomValues(num_bags * kColumns, &made.random);
      Values slopes = RandomValues(num_bags, &made.random);
      Values y(num_bags * kColumns), pairs(num_bags), gradient(rows.size());
      backend_->SumBagsGradient(bags, Of(dy, kColumns), Of(gradient, kColumns));
      CheckGradient(
          &rows,
          [&] {
            backend_->SumBags(bags, Of(rows, kColumns), Of(y, kColumns));
            return Dot(dy, y);
          },
          gradient);
      const auto sum_pairs = [&] {
        backend_->PairwiseBags(bags, Of(rows, kColumns), Of(y, kColumns),
                               Of(pairs, 1));
        return Dot(slopes, pairs);
      };
      sum_pairs();
      std::fill(gradient.begin(), gradient.end(), 0.0f);
      backend_->AddPairwiseBagsGradient(bags, Of(rows, kColumns),
                                        Of(y, kColumns), Of(slopes, 1),
                                        Of(gradient, kColumns));
      CheckGradient(&rows, sum_pairs, gradient);
    }
  }
  std::mt19937 random(3);
  constexpr int64_t kVectors = 7;
  constexpr int64_t kLength = 5;
  Values x = RandomValues(2 * kVectors * kLength, &random);
  Values dy = RandomValues(2 * kVectors * (kVectors - 1) / 2, &random);
  Values y(dy.size()), dx(x.size());
  const Matrix vectors = Of(x, kVectors * kLength);
  const Matrix slopes = Of(dy, kVectors * (kVectors - 1) / 2);
  backend_->DotPairsGradient(vectors, kVectors, slopes,
                             Of(dx, kVectors * kLength));
  CheckGradient(
      &x,
      [&] {
        backend_->DotPairs(vectors, kVectors, Of(y, slopes.cols));
        return Dot(dy, y);
      },
      dx);
}

}  // namespace
}  // namespace holdfast
