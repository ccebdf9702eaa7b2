// SPDX-License-Identifier: Apache-2.0
#include "common/job/batch_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/job/job_file.h"
#include "proto/job.pb.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// {begin, end}.
using Ends = std::pair<int64_t, int64_t>;

Ends EndsOf(const absl::StatusOr<PositionRange>& range) {
  EXPECT_TRUE(range.ok()) << range.status();
  if (!range.ok()) return {-1, -1};
  return {range->begin, range->begin + range->count};
}

// The ranges of all seats of the first `steps` steps.
std::vector<Ends> BySteps(const BatchRanges::Options& options, uint64_t steps) {
  const BatchRanges ranges(options);
  std::vector<Ends> all;
  for (uint64_t step = 0; step < steps; ++step) {
    for (int64_t seat = 0; seat < options.seats_per_step; ++seat) {
      all.push_back(EndsOf(ranges.OfSeat(step, seat)));
    }
  }
  return all;
}

std::vector<Ends> ByTickets(const BatchRanges::Options& options,
                            uint64_t tickets) {
  const BatchRanges ranges(options);
  std::vector<Ends> all;
  for (uint64_t index = 0; index < tickets; ++index) {
    all.push_back(EndsOf(ranges.OfTicket(index)));
  }
  return all;
}

TEST(BatchRangesTest, BatchesFollowEachOther) {
  BatchRanges::Options options;
  options.num_examples = 10;
  options.batch_size = 4;
  options.seats_per_step = 2;
  EXPECT_THAT(
      BySteps(options, 3),
      ElementsAre(Ends{0, 4}, Ends{4, 8}, Ends{8, 12},  // into the next epoch
                  Ends{12, 16}, Ends{16, 20}, Ends{20, 24}));
  // Tickets are the same batches, however many seats there are.
  EXPECT_EQ(ByTickets(options, 6), BySteps(options, 3));
  options.seats_per_step = 7;
  EXPECT_THAT(ByTickets(options, 3),
              ElementsAre(Ends{0, 4}, Ends{4, 8}, Ends{8, 12}));
}

TEST(BatchRangesTest, StepsDependOnlyOnTheirExamples) {
  BatchRanges::Options options;
  options.num_examples = 1050;
  options.batch_size = 100;
  options.seats_per_step = 2;
  const BatchRanges two(options);
  options.batch_size = 200;
  options.seats_per_step = 1;
  const BatchRanges one(options);
  EXPECT_EQ(EndsOf(two.OfSeat(7, 0)), Ends(1400, 1500));
  EXPECT_EQ(EndsOf(two.OfSeat(7, 1)), Ends(1500, 1600));
  EXPECT_EQ(EndsOf(one.OfSeat(7, 0)), Ends(1400, 1600));
}

// 10 examples in batches of 4: 4, 4 and 2.
TEST(BatchRangesTest, ShortLastBatches) {
  BatchRanges::Options options;
  options.num_examples = 10;
  options.batch_size = 4;
  options.short_last_batch = true;
  EXPECT_THAT(ByTickets(options, 7),
              ElementsAre(Ends{0, 4}, Ends{4, 8}, Ends{8, 10}, Ends{10, 14},
                          Ends{14, 18}, Ends{18, 20}, Ends{20, 24}));
  // With one seat, a step is one batch.
  EXPECT_EQ(BySteps(options, 7), ByTickets(options, 7));
  // With two seats, the second step of an epoch has a short seat and an empty
  // one.
  options.seats_per_step = 2;
  EXPECT_THAT(
      BySteps(options, 4),
      ElementsAre(Ends{0, 4}, Ends{4, 8}, Ends{8, 10}, Ends{10, 10},
                  Ends{10, 14}, Ends{14, 18}, Ends{18, 20}, Ends{20, 20}));
  // Four seats, more than an epoch has batches: each epoch is one step.
  options.seats_per_step = 4;
  EXPECT_THAT(
      BySteps(options, 2),
      ElementsAre(Ends{0, 4}, Ends{4, 8}, Ends{8, 10}, Ends{10, 10},
                  Ends{10, 14}, Ends{14, 18}, Ends{18, 20}, Ends{20, 20}));
}

TEST(BatchRangesTest, ShortLastBatchesOfABatchThatIsTheEpoch) {
  BatchRanges::Options options;
  options.short_last_batch = true;
  options.seats_per_step = 2;
  // More than exist.
  options.num_examples = 3;
  options.batch_size = 5;
  EXPECT_THAT(ByTickets(options, 2), ElementsAre(Ends{0, 3}, Ends{3, 6}));
  EXPECT_THAT(BySteps(options, 2),
              ElementsAre(Ends{0, 3}, Ends{3, 3}, Ends{3, 6}, Ends{6, 6}));
  // Exactly as many.
  options.batch_size = 3;
  EXPECT_THAT(ByTickets(options, 2), ElementsAre(Ends{0, 3}, Ends{3, 6}));
  EXPECT_THAT(BySteps(options, 2),
              ElementsAre(Ends{0, 3}, Ends{3, 3}, Ends{3, 6}, Ends{6, 6}));
}

// However the data are cut, whole epochs contain every position once, in
// increasing order, and the job's length in steps and tickets ends exactly
// there.
TEST(BatchRangesTest, EpochsAreWhole) {
  constexpr int kEpochs = 3;
  for (const int64_t n : {1, 2, 3, 7, 12, 13}) {
    for (const int64_t batch : {1, 2, 3, 5, 12, 20}) {
      for (const int64_t seats : {1, 2, 3, 5}) {
        for (const bool short_last : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << n << " examples, " << seats << " seats of " << batch
                       << (short_last ? ", short" : ""));
          BatchRanges::Options options;
          options.num_examples = n;
          options.batch_size = batch;
          options.seats_per_step = seats;
          options.short_last_batch = short_last;
          proto::Job job;
          job.set_batch_size(batch);
          job.set_epochs(kEpochs);
          job.mutable_data()->set_short_last_batch(short_last);
          Replicas replicas;
          replicas.to_aggregate = seats;
          replicas.total = 1;
          const uint64_t steps = TotalSteps(job, n, replicas);
          replicas.examples = proto::BY_TICKET;
          const uint64_t tickets = TotalTickets(job, n, replicas);

          for (const auto& [all, step] :
               {std::pair(BySteps(options, steps), seats * batch),
                std::pair(ByTickets(options, tickets), batch)}) {
            int64_t at = 0;
            for (const auto& [begin, end] : all) {
              ASSERT_EQ(begin, at);
              ASSERT_GE(end, begin);
              ASSERT_LE(end - begin, batch);
              if (short_last && end > begin) {
                ASSERT_EQ(begin / n, (end - 1) / n);
              }
              at = end;
            }
            // All of the epochs, and no more than the last step needs.
            EXPECT_GE(at, kEpochs * n);
            EXPECT_LT(at, kEpochs * n + (short_last ? 1 : step));
          }
        }
      }
    }
  }
}

TEST(BatchRangesTest, RefusesWhatCannotBeCounted) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  const auto of = [](int64_t n, int64_t batch, int64_t seats, bool short_last) {
    return BatchRanges({.num_examples = n,
                        .batch_size = batch,
                        .seats_per_step = seats,
                        .short_last_batch = short_last});
  };
  const auto code = [](const absl::StatusOr<PositionRange>& range) {
    return range.status().code();
  };
  const auto out_of_range = absl::StatusCode::kOutOfRange;
  const int64_t max = kMax;
  EXPECT_EQ(EndsOf(of(1, 1, 1, false).OfSeat(kMax - 1, 0)), Ends(max - 1, max));
  EXPECT_EQ(EndsOf(of(1, 1, 1, true).OfSeat(kMax - 1, 0)), Ends(max - 1, max));
  EXPECT_EQ(EndsOf(of(1, 1, 9, false).OfTicket(kMax - 1)), Ends(max - 1, max));
  EXPECT_EQ(EndsOf(of(max, 9, 9, true).OfTicket(0)), Ends(0, 9));
  for (const bool short_last : {false, true}) {
    EXPECT_EQ(code(of(1, 1, 1, short_last).OfSeat(kMax, 0)), out_of_range);
    EXPECT_EQ(code(of(1, 1, 1, short_last).OfTicket(kMax)), out_of_range);
    EXPECT_EQ(code(of(99, 100, 1, short_last).OfSeat(kMax / 99, 0)),
              out_of_range);
    EXPECT_EQ(code(of(9, 2, 3, short_last).OfSeat(~uint64_t{0}, 2)),
              out_of_range);
    EXPECT_EQ(code(of(9, 2, 3, short_last).OfTicket(~uint64_t{0})),
              out_of_range);
    EXPECT_EQ(
        code(
            of(max, 1000000000, 65536, short_last).OfSeat(1000000000000000, 3)),
        out_of_range);
  }
  // Seats that pass the limit only together.
  EXPECT_EQ(EndsOf(of(5, max, max, true).OfSeat(1, 0)), Ends(5, 10));
  EXPECT_EQ(EndsOf(of(5, max, max, true).OfSeat(1, max - 1)), Ends(10, 10));
  EXPECT_THAT(of(1, 100, 2, false).OfSeat(kMax, 1).status().message(),
              HasSubstr("the examples of seat 1 in step 9223372036854775807 (2 "
                        "seats x 100 examples a step) are beyond 2^63 - 1"));
  EXPECT_THAT(of(1, 100, 2, false).OfTicket(kMax).status().message(),
              HasSubstr("the examples of ticket 9223372036854775807 (100 "
                        "examples each) are beyond 2^63 - 1"));
}

}  // namespace
}  // namespace holdfast
