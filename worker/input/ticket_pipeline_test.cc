// SPDX-License-Identifier: Apache-2.0

// A batch pipeline of a job whose examples are assigned by ticket.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/job/example_order.h"
#include "common/job/ids.h"
#include "worker/input/batch_pipeline.h"
#include "worker/input/testing/batch_pipeline_testing.h"

namespace holdfast {
namespace {

// 100 examples by ticket, in batches of 5.
class TicketPipelineTest : public ::testing::Test {
 protected:
  TicketPipelineTest() {
    options_.batch_size = 5;
    options_.by_ticket = true;
  }

  void Start(int prefetch, int threads) {
    options_.prefetch = prefetch;
    options_.threads = threads;
    pipeline_ = holdfast::Start(source_, options_);
  }

  absl::Status Prepare(uint64_t ticket) { return pipeline_->Prepare(ticket); }
  // Returns what NextTicket returns at once, which is an error if the batch is
  // not made yet.
  absl::StatusCode Ask(uint64_t ticket) {
    return pipeline_->NextTicket(ticket, absl::InfinitePast()).status().code();
  }
  std::vector<int32_t> Take(uint64_t ticket) {
    return TakeTicket(pipeline_.get(), ticket);
  }
  std::vector<int32_t> Expected(uint64_t ticket) const {
    return holdfast::Expected(order_, ticket * 5, 5);
  }

  PuppetSource source_{100};
  const ExampleOrder order_{0, 100};
  BatchPipeline::Options options_;
  std::unique_ptr<BatchPipeline> pipeline_;
};

constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kLate = absl::StatusCode::kDeadlineExceeded;

TEST_F(TicketPipelineTest, GivesTheBatchesInAnyOrder) {
  for (const int threads : {1, 3}) {
    for (const int prefetch : {2, 3, 5}) {
      Start(prefetch, threads);
      // The batch asked for was always prepared after another one.
      EXPECT_TRUE(Prepare(7).ok());
      for (const uint64_t ticket : {3, 1000, 0, 12, 13, 4}) {
        EXPECT_TRUE(Prepare(ticket).ok());
        EXPECT_EQ(Take(ticket), Expected(ticket));
      }
      EXPECT_EQ(Take(7), Expected(7));
    }
  }
}

TEST_F(TicketPipelineTest, GivesWhatWasNotPrepared) {
  Start(/*prefetch=*/1, /*threads=*/1);
  EXPECT_EQ(Take(3), Expected(3));
  // The same again.
  EXPECT_EQ(Take(3), Expected(3));
  EXPECT_TRUE(Prepare(3).ok());
  // Beside one that keeps its place.
  EXPECT_EQ(Take(5), Expected(5));
  EXPECT_EQ(Take(6), Expected(6));
  EXPECT_EQ(Take(3), Expected(3));
  source_.AwaitReads(5 * 5);
  pipeline_.reset();
  EXPECT_EQ(source_.reads(), 5 * 5);
}

// 100 examples in batches of 30: each epoch's last has 10.
TEST_F(TicketPipelineTest, ShortLastBatches) {
  options_.batch_size = 30;
  options_.short_last_batch = true;
  Start(/*prefetch=*/4, /*threads=*/2);
  std::vector<int32_t> all(100);
  std::iota(all.begin(), all.end(), 0);
  for (const uint64_t epoch : {0, 1, 7}) {
    std::vector<int32_t> seen;
    for (const uint64_t i : {2, 3, 0, 1}) {
      const std::vector<int32_t> batch = Take(epoch * 4 + i);
      EXPECT_EQ(batch, holdfast::Expected(order_, epoch * 100 + i * 30,
                                          i == 3 ? 10 : 30));
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, all);
  }
}

TEST_F(TicketPipelineTest, PreparesNoMoreThanItMay) {
  source_.Close();
  Start(/*prefetch=*/2, /*threads=*/1);
  EXPECT_TRUE(Prepare(10).ok());
  EXPECT_TRUE(Prepare(11).ok());
  EXPECT_EQ(Prepare(12), absl::ResourceExhaustedError(
                             "cannot prepare the batch of ticket 12: 2 are "
                             "prepared already"));
  // A prepared batch may be prepared again, whether it is begun or not.
  source_.AwaitHeld(1);
  EXPECT_TRUE(Prepare(10).ok());
  EXPECT_TRUE(Prepare(11).ok());
  source_.Open();
  source_.AwaitReads(2 * 5);
  EXPECT_EQ(Prepare(12).code(), kExhausted);
  // The batch that is handed out does not count.
  EXPECT_EQ(Take(11), Expected(11));
  EXPECT_TRUE(Prepare(12).ok());
  EXPECT_EQ(Prepare(13).code(), kExhausted);
  source_.AwaitReads(3 * 5);
  pipeline_.reset();
  EXPECT_EQ(source_.reads(), 3 * 5);
}

TEST_F(TicketPipelineTest, MemoryStaysUntilTheNextCall) {
  Start(/*prefetch=*/1, /*threads=*/1);
  const auto batch = pipeline_->NextTicket(4, absl::InfiniteFuture());
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE(Prepare(5).ok());
  source_.AwaitReads(2 * 5);
  pipeline_->Drop(5);
  EXPECT_TRUE(Prepare(6).ok());
  // A batch that was handed out is not dropped.
  pipeline_->Drop(4);
  source_.AwaitReads(3 * 5);
  EXPECT_EQ(batch->labels, absl::MakeConstSpan(Expected(4)));
}

TEST_F(TicketPipelineTest, DropsWhatIsQueuedOrMade) {
  source_.Close();
  Start(/*prefetch=*/3, /*threads=*/1);
  for (const uint64_t ticket : {1, 2, 3}) EXPECT_TRUE(Prepare(ticket).ok());
  source_.AwaitHeld(1);
  pipeline_->Drop(2);
  pipeline_->Drop(2);
  EXPECT_TRUE(Prepare(4).ok());
  EXPECT_EQ(Prepare(5).code(), kExhausted);
  source_.Open();
  source_.AwaitReads(3 * 5);
  pipeline_->Drop(3);
  EXPECT_TRUE(Prepare(5).ok());
  EXPECT_EQ(Prepare(6).code(), kExhausted);
  for (const uint64_t ticket : {5, 1, 4}) {
    EXPECT_EQ(Take(ticket), Expected(ticket));
  }
  pipeline_.reset();
  // Ticket 2 was never made.
  EXPECT_EQ(source_.reads(), 4 * 5);
}

TEST_F(TicketPipelineTest, DropsWhatIsInTheMaking) {
  source_.Close();
  Start(/*prefetch=*/2, /*threads=*/2);
  EXPECT_TRUE(Prepare(1).ok());
  EXPECT_TRUE(Prepare(2).ok());
  source_.AwaitHeld(2);
  pipeline_->Drop(1);
  pipeline_->Drop(2);
  // It is begun again: an unwanted batch stays unwanted.
  EXPECT_TRUE(Prepare(1).ok());
  EXPECT_TRUE(Prepare(3).ok());
  EXPECT_EQ(Prepare(4).code(), kExhausted);
  source_.Open();
  EXPECT_EQ(Take(3), Expected(3));
  EXPECT_EQ(Take(1), Expected(1));
  pipeline_.reset();
  EXPECT_EQ(source_.reads(), 4 * 5);
}

TEST_F(TicketPipelineTest, RestartDropsAll) {
  Start(/*prefetch=*/2, /*threads=*/1);
  for (const uint64_t ticket : {7, 8}) EXPECT_TRUE(Prepare(ticket).ok());
  pipeline_->Restart();
  for (const uint64_t ticket : {8, 9}) EXPECT_TRUE(Prepare(ticket).ok());
  for (const uint64_t ticket : {9, 8, 7}) {
    EXPECT_EQ(Take(ticket), Expected(ticket));
  }
}

TEST_F(TicketPipelineTest, WhatIsWaitedForIsMadeFirst) {
  source_.Close();
  Start(/*prefetch=*/3, /*threads=*/1);
  for (const uint64_t ticket : {1, 2, 3}) EXPECT_TRUE(Prepare(ticket).ok());
  source_.AwaitHeld(1);
  EXPECT_EQ(Ask(3), kLate);
  EXPECT_EQ(Ask(9), kLate);
  source_.Open();
  // 1 was begun; then follow 9, 3 and 2.
  source_.AwaitReads(4 * 5);
  EXPECT_EQ(source_.last_read(), Expected(2).back());
  for (const uint64_t ticket : {2, 3, 9, 1}) {
    EXPECT_EQ(Take(ticket), Expected(ticket));
  }
  EXPECT_EQ(source_.reads(), 4 * 5);
}

TEST_F(TicketPipelineTest, KeepsWhatWasAskedForInVain) {
  source_.Close();
  Start(/*prefetch=*/1, /*threads=*/1);
  EXPECT_EQ(pipeline_->NextTicket(1, absl::InfinitePast()).status(),
            absl::DeadlineExceededError(
                "timed out waiting for the batch of ticket 1 to "
                "be read by the input threads"));
  EXPECT_EQ(Prepare(2).code(), kExhausted);
  EXPECT_EQ(Ask(2), kLate);
  EXPECT_EQ(pipeline_->NextTicket(3, absl::InfiniteFuture()).status(),
            absl::ResourceExhaustedError(
                "no room for the batch of ticket 3: 2 are prepared already, "
                "and must be taken or dropped first"));
  EXPECT_EQ(Ask(2), kLate);
  pipeline_->Drop(1);
  EXPECT_EQ(Ask(3), kLate);
  source_.Open();
  EXPECT_EQ(Take(2), Expected(2));
  EXPECT_EQ(Take(3), Expected(3));
  EXPECT_EQ(Take(1), Expected(1));
}

TEST_F(TicketPipelineTest, PreparesWhileAnotherIsWaitedFor) {
  source_.Close();
  Start(/*prefetch=*/2, /*threads=*/1);
  std::thread other([this] {
    source_.AwaitHeld(1);
    EXPECT_TRUE(Prepare(8).ok());
    source_.Open();
  });
  EXPECT_EQ(Take(7), Expected(7));
  other.join();
  source_.AwaitReads(2 * 5);
  EXPECT_EQ(Take(8), Expected(8));
  EXPECT_EQ(source_.reads(), 2 * 5);
}

TEST_F(TicketPipelineTest, PassesErrorsOn) {
  source_.Fail(order_.At(3 * 5 + 2));
  Start(/*prefetch=*/1, /*threads=*/1);
  EXPECT_TRUE(Prepare(3).ok());
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_EQ(pipeline_->NextTicket(3, absl::InfiniteFuture()).status(),
              absl::DataLossError("cannot make the batch of ticket 3: bad "
                                  "sector"));
  }
  // The failed batch's slot is used for other batches.
  EXPECT_TRUE(Prepare(4).ok());
  EXPECT_EQ(Take(5), Expected(5));
  EXPECT_EQ(Take(4), Expected(4));
  source_.Fail(-1);
  EXPECT_EQ(Take(3), Expected(3));
}

TEST_F(TicketPipelineTest, SaysWhenTheStreamIsAtItsEnd) {
  Start(/*prefetch=*/1, /*threads=*/1);
  const uint64_t end = std::numeric_limits<int64_t>::max() / 5;
  EXPECT_TRUE(Prepare(end).ok());
  EXPECT_EQ(Take(end - 1), Expected(end - 1));
  EXPECT_EQ(pipeline_->NextTicket(end, absl::InfiniteFuture()).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(TicketPipelineTest, StopEndsAWait) {
  source_.Close();
  Start(/*prefetch=*/2, /*threads=*/1);
  EXPECT_TRUE(Prepare(0).ok());
  std::thread stopper([this] {
    source_.AwaitHeld(1);
    pipeline_->Stop();
  });
  const absl::Status status =
      pipeline_->NextTicket(1, absl::InfiniteFuture()).status();
  EXPECT_EQ(status,
            absl::CancelledError("the batch pipeline was stopped before "
                                 "the batch of ticket 1 was taken"));
  stopper.join();
  source_.Open();
  EXPECT_EQ(Ask(0), absl::StatusCode::kCancelled);
}

TEST_F(TicketPipelineTest, EndsWhileBatchesAreMade) {
  for (int i = 0; i < 50; ++i) {
    Start(/*prefetch=*/3, /*threads=*/3);
    for (const uint64_t ticket : {0, 1, 2}) EXPECT_TRUE(Prepare(ticket).ok());
    if (i % 2 == 0) Take(1);
  }
}

TEST_F(TicketPipelineTest, OneAssignmentOnly) {
  Start(/*prefetch=*/1, /*threads=*/1);
  EXPECT_EQ(pipeline_->Next(GlobalStep(0), 0, absl::InfiniteFuture()).status(),
            absl::FailedPreconditionError("a batch by step was asked for; this "
                                          "pipeline makes batches by ticket"));
  EXPECT_EQ(source_.reads(), 0);
  options_.by_ticket = false;
  Start(/*prefetch=*/1, /*threads=*/1);
  const absl::Status by_step = absl::FailedPreconditionError(
      "a batch by ticket was asked for; this pipeline makes batches by step");
  EXPECT_EQ(pipeline_->NextTicket(0, absl::InfiniteFuture()).status(), by_step);
  EXPECT_EQ(Prepare(0), by_step);
}

}  // namespace
}  // namespace holdfast
