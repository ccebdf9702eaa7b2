// SPDX-License-Identifier: Apache-2.0

// How many steps and tickets a job has.

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::HasSubstr;

// A job with this length and batch size.
proto::Job JobOf(const std::string& length, uint32_t batch_size) {
  proto::Job job;
  EXPECT_TRUE(TextFormat::ParseFromString(
      absl::StrCat(length, " batch_size: ", batch_size), &job))
      << length;
  return job;
}

constexpr char kShort[] = " data { short_last_batch: true }";

TEST(TotalStepsTest, ByStep) {
  const struct {
    std::string length;
    uint32_t batch_size;
    uint64_t examples;
    uint32_t seats;
    uint64_t steps;
  } kCases[] = {
      {"steps: 3000", 100, 60000, 2, 3000},
      {"epochs: 1", 100, 60000, 2, 300},
      {"epochs: 10", 100, 60000, 2, 3000},
      {"epochs: 1", 100, 60001, 2, 301},
      {"epochs: 1", 100, 59999, 2, 300},
      {"epochs: 0.5", 100, 60000, 1, 300},
      {"epochs: 1", 7, 100, 3, 5},   // 100 / 21 = 4.76
      {"epochs: 5", 7, 100, 3, 24},  // 500 / 21 = 23.81
      {"epochs: 0.1", 1, 30, 3, 1},  // 0.1 * 30 = 3.0000000000000004
      {"epochs: 0.001", 100, 100, 1, 1},
      {"epochs: 1", 100, 0, 1, 1},
      {"epochs: 1e9", 1, 1000000000, 1, 1000000000000000},
      // Each epoch is rounded separately: 100 / 21 are 5 steps.
      {absl::StrCat("steps: 3000", kShort), 7, 100, 3, 3000},
      {absl::StrCat("epochs: 1", kShort), 7, 100, 3, 5},
      {absl::StrCat("epochs: 5", kShort), 7, 100, 3, 25},
      {absl::StrCat("epochs: 3", kShort), 7, 105, 3, 15},
      {absl::StrCat("epochs: 3", kShort), 7, 106, 3, 18},
      // In the last epoch, 25 examples are 2 steps, and 21 are one.
      {absl::StrCat("epochs: 2.25", kShort), 7, 100, 3, 12},
      {absl::StrCat("epochs: 2.21", kShort), 7, 100, 3, 11},
      {absl::StrCat("epochs: 0.01", kShort), 7, 100, 3, 1},
      // A rounding error does not add a step: 3.1 - 3 = 0.10000000000000009;
      // for 30 examples, 3.0000000000000027.
      {absl::StrCat("epochs: 3.1", kShort), 1, 30, 3, 31},
      {absl::StrCat("epochs: 2.9999999999999996", kShort), 1, 30, 3, 30},
      {absl::StrCat("epochs: 3.0000000000000004", kShort), 1, 30, 3, 30},
      // A batch or a step larger than the data.
      {absl::StrCat("epochs: 4", kShort), 7, 5, 1, 4},
      {absl::StrCat("epochs: 4", kShort), 2, 5, 3, 4},
      {absl::StrCat("epochs: 1", kShort), 100, 0, 1, 1},
      {absl::StrCat("epochs: 1e9", kShort), 1, 1000000001, 1, 1000000000000000},
  };
  for (const auto& test : kCases) {
    // Backup replicas have seats too.
    const Replicas replicas = {.to_aggregate = 1, .total = test.seats};
    const proto::Job job = JobOf(test.length, test.batch_size);
    EXPECT_EQ(TotalSteps(job, test.examples, replicas), test.steps)
        << test.length << " of " << test.examples;
    EXPECT_EQ(TotalTickets(job, test.examples, replicas), 0);
  }
}

TEST(TotalTicketsTest, Table) {
  const struct {
    std::string length;
    uint32_t batch_size;
    uint64_t examples;
    // N, or 0 for asynchronous.
    uint32_t to_aggregate;
    uint64_t tickets;
    uint64_t steps;
  } kCases[] = {
      {"steps: 3000", 100, 60000, 0, 3000, 3000},
      {"epochs: 1", 100, 60000, 0, 600, 600},
      {"epochs: 2", 7, 100, 0, 29, 29},  // 200 / 7 = 28.57
      {"epochs: 0.1", 1, 30, 0, 3, 3},
      {"epochs: 0.001", 100, 100, 0, 1, 1},
      {"epochs: 1", 100, 0, 0, 1, 1},
      {"epochs: 1e9", 1, 1000000001, 0, 1000000000000000, 1000000000000000},
      {"steps: 1000000000000000", 1, 10, 0, 1000000000000000, 1000000000000000},
      // Each epoch is rounded separately: 100 / 7 are 15 batches, and 25
      // examples are 4.
      {absl::StrCat("epochs: 2", kShort), 7, 100, 0, 30, 30},
      {absl::StrCat("epochs: 2.25", kShort), 7, 100, 0, 34, 34},
      {absl::StrCat("epochs: 2", kShort), 200, 100, 0, 2, 2},
      // N per step, except in the last.
      {"steps: 3000", 100, 60000, 2, 6000, 3000},
      {"epochs: 1", 100, 60000, 2, 600, 300},
      {"epochs: 2", 7, 100, 3, 29, 10},
      {"epochs: 2", 7, 100, 1, 29, 29},
      {absl::StrCat("epochs: 2.25", kShort), 7, 100, 3, 34, 12},
      // At most 1e18 tickets and 1e15 steps.
      {"steps: 1000000000000000", 1, 10, 3, 3000000000000000, 1000000000000000},
      {"steps: 1000000000000000", 1, 10, 999, 999000000000000000,
       1000000000000000},
      {"steps: 1000000000000000", 1, 10, 65536, 1000000000000000000,
       15258789062500},
      {"epochs: 1e9", 1, 10000000000, 3, 3000000000000000, 1000000000000000},
      {"epochs: 1e9", 1, 10000000000, 65536, 1000000000000000000,
       15258789062500},
  };
  for (const auto& test : kCases) {
    Replicas replicas;
    replicas.to_aggregate = test.to_aggregate;
    // Backup replicas need no tickets of their own.
    replicas.total = 5;
    replicas.asynchronous = test.to_aggregate == 0;
    replicas.examples = proto::BY_TICKET;
    const proto::Job job = JobOf(test.length, test.batch_size);
    EXPECT_EQ(TotalTickets(job, test.examples, replicas), test.tickets)
        << test.length << " of " << test.examples;
    EXPECT_EQ(TotalSteps(job, test.examples, replicas), test.steps)
        << test.length << " of " << test.examples;
  }
}

TEST(ResolveConsistencyTest, ShortLastBatchesNeedTicketsWithBackupReplicas) {
  proto::Job job;
  job.mutable_data()->set_short_last_batch(true);
  auto& sync = *job.mutable_consistency()->mutable_synchronous();
  EXPECT_TRUE(ResolveConsistency(job, 3).ok());
  sync.set_replicas_to_aggregate(2);
  EXPECT_THAT(std::string(ResolveConsistency(job, 3).status().message()),
              HasSubstr("short_last_batch"));
  job.set_examples(proto::BY_TICKET);
  EXPECT_TRUE(ResolveConsistency(job, 3).ok());
}

}  // namespace
}  // namespace holdfast
