// SPDX-License-Identifier: Apache-2.0

// Operations on bags, pairs of vectors and columns, on the device and the CPU.
// Kernels sum in the CPU's order: all results except sums of pairs are exact.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/parity.h"

namespace holdfast {
namespace {

class BagsParityTest : public DeviceComparison {
 protected:
  // An operation on bags.
  using OnBags =
      std::function<void(Backend*, const DeviceBags&, const Matrices&)>;

  // Compares an operation on bags, which are uploaded anew each time.
  void CompareBags(const std::string& name, const Bags& bags, int64_t merged,
                   const std::vector<Values>& all, double tolerance,
                   const OnBags& operation) {
    BagsBuffer staging;
    Compare(name, all, tolerance,
            [&](Backend* backend, const Matrices& matrices) {
              const auto uploaded = backend->UploadBags(bags, &staging);
              if (!uploaded.ok()) return uploaded.status();
              operation(backend, uploaded->Merged(merged), matrices);
              return absl::OkStatus();
            });
  }
};

// `num_bags` bags of up to `most` uses; every fifth row has no uses, and the
// first row has a third of all.
struct RandomBags {
  RandomBags(int64_t num_bags, int64_t num_rows, uint32_t most, bool weighted)
      : offsets{0}, begins{0} {
    std::mt19937 random(7);
    std::vector<std::vector<uint32_t>> by_row(num_rows);
    for (int64_t b = 0; b < num_bags; ++b) {
      for (uint32_t use = random() % (most + 1); use > 0; --use) {
        uint32_t row = random() % num_rows;
        if (row % 5 == 4 || random() % 3 == 0) row = 0;
        by_row[row].push_back(static_cast<uint32_t>(rows.size()));
        rows.push_back(row);
        bags.push_back(static_cast<uint32_t>(b));
      }
      offsets.push_back(static_cast<uint32_t>(rows.size()));
    }
    for (const auto& of_row : by_row) {
      uses.insert(uses.end(), of_row.begin(), of_row.end());
      begins.push_back(static_cast<uint32_t>(uses.size()));
    }
    if (weighted) weights = RandomValues(rows.size(), 8);
  }

  Bags Get() const {
    Bags made;
    made.rows = rows;
    made.bags = bags;
    made.weights = weights;
    made.offsets = offsets;
    made.uses = uses;
    made.begins = begins;
    return made;
  }

  std::vector<uint32_t> rows, bags, offsets, uses, begins;
  std::vector<float> weights;
};

TEST_F(BagsParityTest, Bags) {
  struct Case {
    int64_t bags, rows, cols, merged;
    uint32_t most;
  };
  std::vector<Case> cases = {
      {1, 1, 1, 1, 1},     {12, 5, 3, 3, 4},   {60, 23, 16, 1, 3},
      {60, 23, 1, 6, 2},   {24, 40, 33, 4, 5}, {8, 9, 68, 2, 40},
      {2, 10, 130, 1, 10}, {0, 3, 4, 1, 1},    {5, 3, 8, 1, 0}};
  if (!DeviceIsSlow()) {
    cases.push_back({53248, 20000, 16, 1, 1});
    cases.push_back({53248, 20000, 1, 26, 1});
    cases.push_back({20000, 3000, 64, 4, 5});
  }
  for (const auto [num_bags, num_rows, cols, merged, most] : cases) {
    for (const bool weighted : {false, true}) {
      const RandomBags made(num_bags, num_rows, most, weighted);
      const std::string of =
          absl::StrCat(num_bags, " bags, ", num_rows, " rows of ", cols,
                       ", merged ", merged, weighted ? ", with weights" : "");
      const int64_t results = num_bags / merged;
      const Values rows = Values::Random(num_rows, cols, 1);
      CompareBags(
          absl::StrCat("SumBags of ", of), made.Get(), merged,
          {rows, Values::Unset(results, cols)}, kExact,
          [](Backend* backend, const DeviceBags& bags, const Matrices& x) {
            backend->SumBags(bags, x[0], x[1]);
          });
      CompareBags(
          absl::StrCat("SumBagsGradient of ", of), made.Get(), merged,
          {Values::Random(results, cols, 2), Values::Unset(num_rows, cols)},
          kExact,
          [](Backend* backend, const DeviceBags& bags, const Matrices& x) {
            backend->SumBagsGradient(bags, x[0], x[1]);
          });
      CompareBags(
          absl::StrCat("PairwiseBags of ", of), made.Get(), merged,
          {rows, Values::Unset(results, cols), Values::Unset(results, 1)},
          kRounding,
          [](Backend* backend, const DeviceBags& bags, const Matrices& x) {
            backend->PairwiseBags(bags, x[0], x[1], x[2]);
          });
      CompareBags(
          absl::StrCat("AddPairwiseBagsGradient of ", of), made.Get(), merged,
          {rows, Values::Random(results, cols, 3),
           Values::Random(results, 1, 4), Values::Random(num_rows, cols, 5)},
          kExact,
          [](Backend* backend, const DeviceBags& bags, const Matrices& x) {
            backend->AddPairwiseBagsGradient(bags, x[0], x[1], x[2], x[3]);
          });
    }
  }
}

TEST_F(BagsParityTest, PairsOfVectors) {
  struct Case {
    int64_t m, n, d;
  };
  std::vector<Case> cases = {{3, 1, 4},  {2, 2, 1},   {3, 5, 7},  {2, 27, 16},
                             {0, 4, 4},  {2, 32, 32}, {1, 33, 5}, {1, 70, 3},
                             {1, 4, 67}, {2, 9, 64}};
  if (!DeviceIsSlow()) {
    cases.push_back({2048, 27, 16});
    cases.push_back({2048, 27, 64});
    cases.push_back({3, 200, 129});
  }
  for (const auto [m, n, d] : cases) {
    const std::string of = absl::StrCat(m, " times ", n, " vectors of ", d);
    const int64_t pairs = n * (n - 1) / 2;
    Values x = Values::Random(m, n * d, 1);
    // Values that are not finite must not spread to other results.
    if (m > 0 && n > 2) x.values[d] = std::numeric_limits<float>::infinity();
    Compare(absl::StrCat("DotPairs of ", of), {x, Values::Unset(m, pairs)},
            kExact, Void([n = n](Backend* backend, const Matrices& x) {
              backend->DotPairs(x[0], n, x[1]);
            }));
    Compare(absl::StrCat("DotPairsGradient of ", of),
            {x, Values::Random(m, pairs, 2), Values::Unset(m, n * d)}, kExact,
            Void([n = n](Backend* backend, const Matrices& x) {
              backend->DotPairsGradient(x[0], n, x[1], x[2]);
            }));
  }
}

TEST_F(BagsParityTest, Columns) {
  struct Case {
    int64_t m, x_cols, from, count, y_cols, to;
  };
  std::vector<Case> cases = {
      {3, 5, 1, 2, 4, 1},     {7, 16, 4, 8, 12, 4},      {7, 16, 4, 8, 12, 3},
      {5, 3, 0, 3, 3, 0},     {4, 6, 6, 0, 2, 1},        {0, 4, 0, 4, 8, 4},
      {300, 1, 0, 1, 417, 4}, {40, 351, 0, 351, 400, 16}};
  if (!DeviceIsSlow()) cases.push_back({2048, 432, 0, 416, 448, 16});
  for (const auto& [m, x_cols, from, count, y_cols, to] : cases) {
    const std::vector<Values> all = {Values::Random(m, x_cols, 1),
                                     Values::Random(m, y_cols, 2)};
    const std::string of =
        absl::StrCat(count, " columns of ", m, " x ", x_cols, " from ", from,
                     " to ", to, " of ", y_cols);
    Compare(absl::StrCat("CopyColumns of ", of), all, kExact,
            Void([from = from, count = count, to = to](Backend* backend,
                                                       const Matrices& x) {
              backend->CopyColumns(x[0], from, count, x[1], to);
            }));
    Compare(absl::StrCat("AddColumns of ", of), all, kExact,
            Void([from = from, count = count, to = to](Backend* backend,
                                                       const Matrices& x) {
              backend->AddColumns(x[0], from, count, x[1], to);
            }));
  }
}

}  // namespace
}  // namespace holdfast
