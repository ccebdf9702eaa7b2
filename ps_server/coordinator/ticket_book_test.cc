// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/ticket_book.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

WorkerLife Life(uint32_t worker, uint64_t incarnation = 1) {
  return {{kWorkerJob, worker}, Incarnation(incarnation)};
}
PushId Push(uint32_t worker, uint64_t sequence) {
  return {Life(worker), PushSequence(sequence)};
}

class TicketBookTest : public ::testing::Test {
 protected:
  // A job of `tickets` tickets, whose two workers have joined.
  void Begin(uint64_t tickets, std::optional<uint32_t> bound = std::nullopt) {
    proto::Declaration declaration;
    auto& mode = *declaration.mutable_consistency()->mutable_asynchronous();
    mode.set_pipeline_depth(1);
    if (bound.has_value()) mode.set_staleness_bound(*bound);
    declaration.set_total_tickets(tickets);
    ASSERT_TRUE(declared_.Set(declaration).ok());
    for (const uint32_t worker : {0, 1}) book_.OnJoined(Life(worker), worker);
    book_.Begin(proto::Position());
  }
  absl::Status Check(const PushId& push) {
    proto::TakeTicketRequest request;
    request.set_sequence(push.sequence.value());
    return book_.CheckMayTake(request, push, verdicts_, /*ended=*/false);
  }
  void Ask(const PushId& push) {
    ASSERT_TRUE(Check(push).ok()) << Check(push);
    book_.parked()->ParkLatest(
        push, [](const auto&) {}, absl::Time());
  }
  // Worker, sequence and ticket of the requests that are granted now, like
  // "0#1:0".
  std::vector<std::string> Grant() {
    std::vector<std::string> granted;
    while (const auto call = book_.GrantNext(/*loss_scale=*/8)) {
      granted.push_back(absl::StrCat(call->key.from.worker.index, "#",
                                     call->key.sequence.value(), ":",
                                     book_.Find(call->key)->index));
    }
    return granted;
  }

  JobDeclaration declared_{1, 2, false};
  Verdicts verdicts_;
  TicketBook book_{&declared_};
};

TEST_F(TicketBookTest, TicketsGoOutInTheOrderOfRequests) {
  Begin(3);
  Ask(Push(1, 1));
  Ask(Push(0, 1));
  Ask(Push(0, 2));
  Ask(Push(1, 2));
  EXPECT_THAT(Grant(), ElementsAre("1#1:0", "0#1:1", "0#2:2"));
  EXPECT_EQ(book_.Find(Push(1, 1))->loss_scale, 8);
  EXPECT_THAT(Grant(), IsEmpty()) << "none is left";
  EXPECT_EQ(book_.parked()->size(), 1u);
}

TEST_F(TicketBookTest, WhatIsReturnedGoesToWhoWaits) {
  Begin(2);
  for (const uint32_t worker : {0, 1}) Ask(Push(worker, 1));
  Grant();
  Ask(Push(1, 2));
  EXPECT_TRUE(book_.Return(Push(0, 1)));
  EXPECT_FALSE(book_.Return(Push(0, 1))) << "[R9]";
  EXPECT_THAT(Grant(), ElementsAre("1#2:0"));
}

TEST_F(TicketBookTest, SequencesRiseByOne) {
  Begin(10);
  EXPECT_TRUE(Fails(Check(Push(0, 2)), absl::StatusCode::kFailedPrecondition,
                    {"expected push 1"}));
  Ask(Push(0, 1));
  Ask(Push(0, 2));
  EXPECT_TRUE(Fails(Check(Push(0, 3)), absl::StatusCode::kResourceExhausted,
                    {"at most 2"}));
  EXPECT_TRUE(Check(Push(0, 2)).ok()) << "asked again";
}

TEST_F(TicketBookTest, TheBoundIsTheSlowestLiveWorkers) {
  Begin(10, /*bound=*/0);
  Ask(Push(0, 1));
  Ask(Push(1, 1));
  EXPECT_THAT(Grant(), ElementsAre("0#1:0", "1#1:1"));
  ASSERT_TRUE(book_.Book(Push(0, 1)).has_value());
  Ask(Push(0, 2));
  EXPECT_THAT(Grant(), IsEmpty()) << "worker 1 has spent nothing";
  book_.SetLive({kWorkerJob, 1}, false);
  EXPECT_THAT(Grant(), ElementsAre("0#2:2"));
  EXPECT_FALSE(book_.Book(Push(0, 1)).has_value()) << "told again";
}

TEST_F(TicketBookTest, ANewcomerBeginsAtTheSlowestClock) {
  Begin(10, /*bound=*/0);
  for (const uint32_t worker : {0, 1}) Ask(Push(worker, 1));
  Grant();
  for (const uint32_t worker : {0, 1}) book_.Book(Push(worker, 1));
  book_.OnJoined(Life(2), 2);
  Ask(Push(0, 2));
  Ask(Push(2, 1));
  EXPECT_THAT(Grant(), ElementsAre("0#2:2", "2#1:3"));
}

TEST_F(TicketBookTest, AWorkerThatLeavesATicketBehindWaits_P3) {
  Begin(10);
  Ask(Push(0, 1));
  Ask(Push(0, 2));
  Grant();
  book_.Book(Push(0, 2));
  Ask(Push(0, 3));
  EXPECT_THAT(Grant(), IsEmpty());
  book_.Book(Push(0, 1));
  EXPECT_THAT(Grant(), ElementsAre("0#3:2"));
}

TEST_F(TicketBookTest, WhatIsOutIsNotAcknowledged) {
  Begin(10);
  Ask(Push(0, 1));
  Ask(Push(0, 2));
  Grant();
  book_.Book(Push(0, 1));
  EXPECT_EQ(book_.LimitAck(Life(0), 2), PushSequence(1));
  EXPECT_EQ(book_.LimitAck(Life(1), 2), PushSequence(2));
  book_.Book(Push(0, 2));
  EXPECT_EQ(book_.LimitAck(Life(0), 2), PushSequence(2));
}

TEST_F(TicketBookTest, WhatACheckpointMakesFinal) {
  Begin(10);
  Ask(Push(0, 1));
  Ask(Push(0, 2));
  Ask(Push(1, 1));
  Grant();
  book_.Book(Push(0, 1));
  EXPECT_THAT(book_.Through({}),
              ElementsAre(testing::Pair(Life(0), PushSequence(1)),
                          testing::Pair(Life(1), PushSequence(0))));
  EXPECT_THAT(book_.Through({Push(0, 2), Push(1, 1)}),
              ElementsAre(testing::Pair(Life(0), PushSequence(2)),
                          testing::Pair(Life(1), PushSequence(1))));
}

TEST_F(TicketBookTest, ANewGenerationBeginsAnew) {
  Begin(10, /*bound=*/0);
  Ask(Push(0, 1));
  Grant();
  book_.Book(Push(0, 1));
  book_.Reset();
  EXPECT_FALSE(book_.open());
  EXPECT_FALSE(book_.Find(Push(0, 1)).has_value());
  proto::Position position;
  position.set_next_ticket(2);
  position.add_returned_tickets(0);
  book_.Begin(position);
  Ask(Push(0, 1));
  Ask(Push(1, 1));
  EXPECT_THAT(Grant(), ElementsAre("0#1:0", "1#1:2"));
}

}  // namespace
}  // namespace holdfast
