// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_samples.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace holdfast {
namespace {

std::vector<absl::Duration> Microseconds(int from, int to) {
  std::vector<absl::Duration> samples;
  for (int i = from; i != to; i += from < to ? 1 : -1) {
    samples.push_back(absl::Microseconds(i));
  }
  return samples;
}

// The sample of rank ceil(share x count): of 1 to 200, 100, 180 and 198.
TEST(BenchSamplesTest, QuantilesAreSamples) {
  proto::BenchmarkResult result;
  Summarize(Microseconds(200, 0), &result);
  EXPECT_EQ(result.rounds(), 200);
  EXPECT_EQ(result.median_us(), 100);
  EXPECT_EQ(result.p90_us(), 180);
  EXPECT_EQ(result.p99_us(), 198);
}

TEST(BenchSamplesTest, OneSample) {
  proto::BenchmarkResult result;
  Summarize(Microseconds(7, 8), &result);
  EXPECT_EQ(result.rounds(), 1);
  EXPECT_EQ(result.median_us(), 7);
  EXPECT_EQ(result.p99_us(), 7);
}

// 64e6 bytes in 32 ms are 2e9 a second.
TEST(BenchSamplesTest, Rate) {
  proto::BenchmarkResult result;
  result.set_bytes(64e6);
  result.set_median_us(32000);
  SetRate(&result);
  EXPECT_DOUBLE_EQ(result.gb_per_s(), 2);
}

// 20,000 rows in 4 ms, and 5 ms of CPU time.
TEST(BenchSamplesTest, CostsOfRows) {
  proto::BenchmarkResult result;
  result.set_rows(20000);
  result.set_median_us(4000);
  result.set_cpu_us(5000);
  SetRowCosts(&result);
  EXPECT_DOUBLE_EQ(result.rows_per_second(), 5e6);
  EXPECT_DOUBLE_EQ(result.ns_per_row(), 200);
  EXPECT_DOUBLE_EQ(result.cpu_ns_per_row(), 250);
}

TEST(BenchSamplesTest, CpuTime) {
  const auto before = CpuTimeOf({getpid()});
  ASSERT_TRUE(before.ok()) << before.status();
  absl::StatusOr<absl::Duration> after;
  do {
    after = CpuTimeOf({getpid()});
    ASSERT_TRUE(after.ok()) << after.status();
  } while (*after < *before + absl::Milliseconds(1));
  // PID_MAX_LIMIT. The system assigns only smaller ones.
  EXPECT_FALSE(CpuTimeOf({getpid(), 1 << 22}).ok());
}

TEST(BenchSamplesTest, TimesWhatSucceeds) {
  std::vector<absl::Duration> samples;
  EXPECT_TRUE(Timed([] { return absl::OkStatus(); }, &samples).ok());
  EXPECT_FALSE(Timed([] { return absl::AbortedError("x"); }, &samples).ok());
  EXPECT_TRUE(Timed([] { return absl::OkStatus(); }, nullptr).ok());
  ASSERT_EQ(samples.size(), 1);
  EXPECT_GE(samples[0], absl::ZeroDuration());
}

}  // namespace
}  // namespace holdfast
