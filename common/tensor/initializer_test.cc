// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/sha256.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

proto::Initializer Parse(const std::string& text) {
  proto::Initializer initializer;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(text, &initializer));
  return initializer;
}

std::vector<float> Values(const std::string& initializer,
                          const std::vector<int64_t>& shape,
                          const std::string& name = "v", uint64_t seed = 1) {
  int64_t count = 1;
  for (const int64_t dimension : shape) count *= dimension;
  std::vector<float> values(count, -12345.0f);
  const absl::Status status = Initialize(Parse(initializer), shape, name, seed,
                                         0, absl::MakeSpan(values));
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

std::string Digest(const std::vector<float>& values) {
  Sha256 sha;
  sha.Update(values.data(), values.size() * sizeof(float));
  return sha.HexDigest();
}

// The mean, standard deviation and excess kurtosis of a sample.
struct Moments {
  double mean = 0;
  double stddev = 0;
  double kurtosis = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments moments;
  for (const float value : values) moments.mean += value;
  moments.mean /= values.size();
  double second = 0;
  double fourth = 0;
  for (const float value : values) {
    const double square = (value - moments.mean) * (value - moments.mean);
    second += square;
    fourth += square * square;
  }
  second /= values.size();
  fourth /= values.size();
  moments.stddev = std::sqrt(second);
  moments.kurtosis = fourth / (second * second) - 3;
  return moments;
}

TEST(InitializerTest, ZerosAndConstant) {
  EXPECT_EQ(Values("zeros {}", {5}), std::vector<float>(5, 0.0f));
  EXPECT_EQ(Values("constant { value: -2.5 }", {2, 2}),
            std::vector<float>(4, -2.5f));
  EXPECT_EQ(Values("constant { value: 3 }", {}), std::vector<float>(1, 3.0f));
  EXPECT_EQ(Values("normal { stddev: 1 }", {3, 0, 2}), std::vector<float>());
}

struct Law {
  std::string initializer;
  double mean;
  double stddev;
  double kurtosis;
  // All values are within the bounds, inclusive, and some are close to them.
  double least;
  double greatest;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// For a standard normal truncated at 2, the variance is 1 - 4 f(2) / P(|x| < 2)
// = 0.773741 with f the density, and the fourth moment is 3 variance - 16 f(2)
// / P(|x| < 2) = 1.416189; hence the excess kurtosis.
constexpr double kCutStddev = 0.879626;
constexpr double kCutKurtosis = -0.634463;

// Shape [1000, 1000]: glorot v = 1 / 1000, he v = 2 / 1000; limit sqrt(3 v).
const Law kLaws[] = {
    // A uniform distribution has the standard deviation width / sqrt(12) and
    // the excess kurtosis -1.2.
    {"uniform { low: -1 high: 3 }", 1, 1.154701, -1.2, -1, 3},
    {"normal { mean: 2 stddev: 0.5 }", 2, 0.5, 0, -kInfinity, kInfinity},
    {"truncated_normal { mean: 1 stddev: 3 }", 1, 3 * kCutStddev, kCutKurtosis,
     -5, 7},
    {"glorot {}", 0, 0.0316228, -1.2, -0.0547723, 0.0547723},
    {"glorot { distribution: NORMAL }", 0, 0.0316228, kCutKurtosis, -0.0719006,
     0.0719006},
    {"he {}", 0, 0.0447214, -1.2, -0.0774597, 0.0774597},
    {"he { distribution: NORMAL }", 0, 0.0447214, kCutKurtosis, -0.101683,
     0.101683},
};

TEST(InitializerTest, Moments) {
  for (const Law& law : kLaws) {
    const std::vector<float> values = Values(law.initializer, {1000, 1000});
    const Moments moments = MomentsOf(values);
    // With 10^6 draws the standard error of the mean is stddev / 1000, of the
    // standard deviation about stddev / 1414, and of the kurtosis at most
    // 0.005; the limits are four times these.
    EXPECT_NEAR(moments.mean, law.mean, 0.004 * law.stddev) << law.initializer;
    EXPECT_NEAR(moments.stddev, law.stddev, 0.003 * law.stddev)
        << law.initializer;
    EXPECT_NEAR(moments.kurtosis, law.kurtosis, 0.02) << law.initializer;
    const auto [least, greatest] =
        std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*least, law.least - 1e-6) << law.initializer;
    EXPECT_LE(*greatest, law.greatest + 1e-6) << law.initializer;
    if (std::isfinite(law.least)) {
      const double near = 1e-3 * (law.greatest - law.least);
      EXPECT_LT(*least, law.least + near) << law.initializer;
      EXPECT_GT(*greatest, law.greatest - near) << law.initializer;
    }
  }
}

TEST(InitializerTest, NormalHasItsQuantiles) {
  std::vector<float> values = Values("normal { stddev: 1 }", {1000, 1000});
  std::sort(values.begin(), values.end());
  // The fraction of values below x is the normal distribution function at x;
  // its standard error is at most 1 / (2 sqrt(n)) = 0.0005, and the limit is
  // four times that.
  for (const double x : {-3.0, -2.0, -1.0, -0.3, 0.0, 0.5, 1.5, 2.5}) {
    const double share =
        (std::lower_bound(values.begin(), values.end(), x) - values.begin()) /
        1e6;
    EXPECT_NEAR(share, 0.5 * std::erfc(-x / std::sqrt(2.0)), 0.002) << x;
  }
}

TEST(InitializerTest, NeighboursAndNamesAndSeedsAreUncorrelated) {
  const std::vector<float> values = Values("normal { stddev: 1 }", {100000});
  const auto correlation = [](const std::vector<float>& a,
                              const std::vector<float>& b, size_t lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < a.size(); ++i) sum += a[i] * b[i + lag];
    return sum / static_cast<double>(a.size());
  };
  // The standard error of each is 1 / sqrt(100000) = 0.0032.
  for (const size_t lag : {1, 2, 3, 4, 5, 256}) {
    EXPECT_NEAR(correlation(values, values, lag), 0, 0.013) << lag;
  }
  EXPECT_NEAR(
      correlation(values, Values("normal { stddev: 1 }", {100000}, "w"), 0), 0,
      0.013);
  // Seeds that differ in the lowest and in the highest bit.
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1} << 63 | 1}) {
    EXPECT_NEAR(
        correlation(values, Values("normal { stddev: 1 }", {100000}, "v", seed),
                    0),
        0, 0.013);
  }
}

// The limit of a uniform distribution reveals the fans: sqrt(6 / (in + out)).
TEST(InitializerTest, FansAreTensorFlows) {
  const struct {
    std::vector<int64_t> shape;
    double fan_in;
    double fan_out;
  } kCases[] = {
      {{4000}, 4000, 4000},       {{80, 50}, 80, 50},
      {{50, 80}, 50, 80},         {{3, 40, 50}, 120, 150},
      {{3, 3, 16, 32}, 144, 288}, {{2, 3, 2, 20, 30}, 240, 360},
  };
  for (const auto& test : kCases) {
    for (const bool glorot : {true, false}) {
      const std::vector<float> values =
          Values(glorot ? "glorot {}" : "he {}", test.shape);
      const double limit =
          std::sqrt(6 / (glorot ? test.fan_in + test.fan_out : test.fan_in));
      const float greatest = *std::max_element(values.begin(), values.end());
      EXPECT_LE(greatest, limit * (1 + 1e-7));
      EXPECT_GT(greatest, limit * 0.995);
    }
  }
  // A scalar has fans of 1: the limit is sqrt(3) for glorot and sqrt(6) for he.
  // Over many names the greatest value comes close to it.
  float glorot = 0;
  float he = 0;
  for (int i = 0; i < 2000; ++i) {
    glorot = std::max(glorot, Values("glorot {}", {}, absl::StrCat(i))[0]);
    he = std::max(he, Values("he {}", {}, absl::StrCat(i))[0]);
  }
  EXPECT_LE(glorot, 1.7320509);
  EXPECT_GT(glorot, 1.72);
  EXPECT_LE(he, 2.4494899);
  EXPECT_GT(he, 2.43);
}

TEST(InitializerTest, UniformStaysBelowHigh) {
  // The interval from 1 to the float two steps above it contains two floats;
  // half of all draws would round up to `high` if they were not limited.
  proto::Initializer initializer;
  const float high = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);
  initializer.mutable_uniform()->set_low(1);
  initializer.mutable_uniform()->set_high(high);
  std::vector<float> values(1000);
  ASSERT_TRUE(
      Initialize(initializer, {1000}, "v", 1, 0, absl::MakeSpan(values)).ok());
  for (const float value : values) {
    EXPECT_GE(value, 1);
    EXPECT_LT(value, high);
  }
}

TEST(InitializerTest, HugeParametersStayFinite) {
  for (const char* initializer :
       {"normal { mean: 3e38 stddev: 3e38 }",
        "truncated_normal { mean: -3e38 stddev: 3e38 }",
        "uniform { low: -3.4e38 high: 3.4e38 }"}) {
    for (const float value : Values(initializer, {1000})) {
      EXPECT_TRUE(std::isfinite(value)) << initializer;
    }
  }
}

// However a variable is cut, a slice has the values of the whole there.
TEST(InitializerTest, SlicingChangesNothing) {
  const std::vector<int64_t> shape = {37, 29};
  const int64_t count = 37 * 29;
  for (const Law& law : kLaws) {
    const std::vector<float> whole = Values(law.initializer, shape);
    for (const int64_t step : {1, 2, 3, 4, 5, 7, 64, 1001}) {
      std::vector<float> sliced(count);
      for (int64_t begin = 0; begin < count; begin += step) {
        const int64_t size = std::min(step, count - begin);
        ASSERT_TRUE(Initialize(Parse(law.initializer), shape, "v", 1, begin,
                               absl::MakeSpan(sliced).subspan(begin, size))
                        .ok());
      }
      EXPECT_EQ(sliced, whole) << law.initializer << " by " << step;
    }
  }
}

TEST(InitializerTest, FarElements) {
  // From element 2^34 on, the block number needs both words of the counter.
  const int64_t far = (int64_t{1} << 34) + 2;
  std::vector<float> values(6);
  std::vector<float> near(6);
  const proto::Initializer uniform = Parse("uniform { low: 0 high: 1 }");
  ASSERT_TRUE(Initialize(uniform, {int64_t{1} << 40}, "v", 1, far,
                         absl::MakeSpan(values))
                  .ok());
  ASSERT_TRUE(
      Initialize(uniform, {int64_t{1} << 40}, "v", 1, 2, absl::MakeSpan(near))
          .ok());
  EXPECT_NE(values, near);
}

TEST(InitializerTest, NameAndSeedMatter) {
  const std::string uniform = "uniform { low: 0 high: 1 }";
  const std::vector<float> values = Values(uniform, {16}, "a", 1);
  EXPECT_EQ(Values(uniform, {16}, "a", 1), values);
  EXPECT_EQ(Values(uniform, {4, 4}, "a", 1), values);
  EXPECT_NE(Values(uniform, {16}, "b", 1), values);
  EXPECT_NE(Values(uniform, {16}, "a", 2), values);
  EXPECT_NE(Values(uniform, {16}, "a", uint64_t{1} << 32 | 1), values);
}

// SHA-256 of the little-endian bytes. A change here changes the results of
// every existing job. Those of uniform, normal and "glorot {}" were also made
// with Python, from integers, floats and statistics.NormalDist (AS 241 as
// well).
TEST(InitializerTest, GoldenBits) {
  const struct {
    std::string initializer;
    std::string digest;
  } kCases[] = {
      {"uniform { low: -1 high: 3 }",
       "07b720185dcf0f796eab60e8f05dd34d889a53e499f063745c10eb1498a72931"},
      {"normal { mean: 2 stddev: 0.5 }",
       "50da9cf10a55d30029890167667178880c8971930a4c618fe925e119cd550f8a"},
      {"truncated_normal { mean: 1 stddev: 3 }",
       "b5e40754067e1276b906df5778ef8a591ef0f9f19dd68bf382ffb916d534b5bb"},
      {"glorot {}",
       "e9a3dcbb4a019fcfe063b99e6d5914703fdb563d8bc7f6463129b0c3ce8275ed"},
      {"glorot { distribution: NORMAL }",
       "f4653fe1fe0c410f8c37c2f86725ba8954f3f6294d73f0683c406c94d8b35791"},
      {"he {}",
       "72196bc3ec539b7aff39b0cd186f4623fd3075a66f8d02217de21075d3e2966e"},
      {"he { distribution: NORMAL }",
       "f257f07cbe7082d58e78e2915dd812b9b3b2402808020f17419dd22494f05dc4"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Digest(Values(test.initializer, {784, 10}, "softmax/kernel", 42)),
              test.digest)
        << test.initializer;
  }
}

TEST(InitializerTest, Refused) {
  proto::Initializer strange = Parse("he {}");
  strange.mutable_he()->set_distribution(
      static_cast<proto::Initializer::Distribution>(9));
  const struct {
    proto::Initializer initializer;
    std::vector<int64_t> shape;
    int64_t begin;
    absl::StatusCode code;
    std::string error;
  } kCases[] = {
      {Parse(""), {4}, 0, absl::StatusCode::kInvalidArgument, "has no kind"},
      {strange, {4}, 0, absl::StatusCode::kInvalidArgument, "distribution 9"},
      {Parse("zeros {}"),
       {-4},
       0,
       absl::StatusCode::kInvalidArgument,
       "variable \"v\": shape [-4] has a negative dimension"},
      {Parse("zeros {}"), {4}, 1, absl::StatusCode::kOutOfRange, "1 to 1 + 4"},
      {Parse("zeros {}"), {4}, -1, absl::StatusCode::kOutOfRange, "-1"},
      {Parse("zeros {}"), {4}, 5, absl::StatusCode::kOutOfRange, "5"},
      {Parse("zeros {}"), {0, 4}, 0, absl::StatusCode::kOutOfRange, "[0,4]"},
      {Parse("zeros {}"),
       {4},
       INT64_MAX,
       absl::StatusCode::kOutOfRange,
       "has no elements"},
  };
  for (const auto& test : kCases) {
    std::vector<float> values(4, 7.0f);
    const absl::Status status = Initialize(test.initializer, test.shape, "v", 1,
                                           test.begin, absl::MakeSpan(values));
    EXPECT_EQ(status.code(), test.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.error));
    EXPECT_EQ(values, std::vector<float>(4, 7.0f)) << status;
  }
}

std::vector<float> Row(const std::string& initializer, uint32_t length,
                       uint64_t id, const std::string& name = "v",
                       uint64_t seed = 1) {
  std::vector<float> values(length, -12345.0f);
  const absl::StatusOr<RowInitializer> rows =
      RowInitializer::Create(Parse(initializer), length, name, seed);
  EXPECT_TRUE(rows.ok()) << rows.status();
  rows->Fill(id, absl::MakeSpan(values));
  return values;
}

TEST(RowInitializerTest, RowsOfATableAreThoseOfAVariable_B3) {
  for (const std::string initializer :
       {"zeros {}", "constant { value: 2.5 }", "uniform { low: -3 high: 5 }",
        "normal { mean: 1 stddev: 2 }", "truncated_normal { stddev: 0.5 }"}) {
    // Rows that begin inside a block of four random numbers, and rows that do
    // not.
    for (const uint32_t length : {1, 3, 4, 17}) {
      constexpr int64_t kRows = 9;
      const std::vector<float> whole = Values(initializer, {kRows, length});
      std::vector<float> rows;
      for (int64_t id = 0; id < kRows; ++id) {
        const std::vector<float> row = Row(initializer, length, id);
        rows.insert(rows.end(), row.begin(), row.end());
      }
      EXPECT_EQ(rows, whole) << initializer << " " << length;
    }
  }
}

TEST(RowInitializerTest, EveryIdHasValuesOfItsOwn) {
  const std::string uniform = "uniform { low: 0 high: 1 }";
  // 64-bit ids. With rows of 16 elements, the element numbers of ids that
  // differ by 2^62 differ by 2^66, which is 2^64 blocks.
  std::vector<std::vector<float>> rows;
  for (const uint64_t id :
       {uint64_t{0}, uint64_t{1}, uint64_t{1} << 62, uint64_t{2} << 62,
        uint64_t{3} << 62, uint64_t{1} << 63 | 1, ~uint64_t{0}}) {
    rows.push_back(Row(uniform, 16, id));
    EXPECT_EQ(Row(uniform, 16, id), rows.back()) << id;
  }
  rows.push_back(Row(uniform, 16, 0, "w"));
  rows.push_back(Row(uniform, 16, 0, "v", 2));
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(std::unique(rows.begin(), rows.end()), rows.end());
}

TEST(RowInitializerTest, WhatATableCannotHave) {
  const struct {
    const char* initializer;
    const char* error;
  } kCases[] = {
      {"glorot {}", "depend on the number of rows"},
      {"he {}", "depend on the number of rows"},
      {"given {}", "cannot be given"},
      {"", "has no kind"},
  };
  for (const auto& test : kCases) {
    const absl::Status status =
        RowInitializer::Create(Parse(test.initializer), 4, "users", 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("table \"users\""));
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.error));
  }
}

TEST(InverseNormalCdfTest, KnownQuantiles) {
  const struct {
    double p;
    double x;
  } kCases[] = {
      {0.5, 0},
      // Wichura's own test values.
      {0.25, -0.6744897501960817},
      {0.001, -3.090232306167814},
      {1e-20, -9.262340089798408},
      // Common tables, to 16 digits.
      {0.75, 0.6744897501960817},
      {0.9, 1.2815515655446004},
      {0.95, 1.6448536269514722},
      {0.975, 1.9599639845400545},
      {0.99, 2.3263478740408408},
      {0.999, 3.0902323061678132},
      {0.02275013194817921, -2},
      {0.15865525393145705, -1},
      {0.8413447460685429, 1},
      {1e-10, -6.361340902404056},
  };
  for (const auto& test : kCases) {
    EXPECT_NEAR(InverseNormalCdf(test.p), test.x, 2e-15 * std::abs(test.x))
        << test.p;
  }
}

TEST(InverseNormalCdfTest, UndoesErfc) {
  // 1/2 erfc(-x / sqrt(2)) in the C library is accurate to a few units in the
  // last place; relative errors of p are those of x times the slope, below 10
  // here.
  for (double x = -7; x <= 0; x += 0.001) {
    const double p = 0.5 * std::erfc(-x / std::sqrt(2.0));
    EXPECT_NEAR(InverseNormalCdf(p), x, 1e-14) << x;
  }
}

TEST(InverseNormalCdfTest, IsOdd) {
  for (const double p : {0.4, 0.25, 0.125, 0.0625, 0x1p-20, 0x1p-33}) {
    EXPECT_EQ(InverseNormalCdf(p), -InverseNormalCdf(1 - p)) << p;
  }
}

}  // namespace
}  // namespace holdfast
