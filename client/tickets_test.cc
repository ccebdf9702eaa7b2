// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

using Response = proto::TakeTicketResponse;

class TicketsTest : public ClientTest {
 protected:
  void SetUp() override {
    asynchronous = true;
    at_.versions.resize(2);
    Reconnect();
  }
  void TearDown() override { cluster_.reset(); }

  // Connects again, with the current `timing`.
  void Reconnect() {
    cluster_ = ConnectReady();
    ASSERT_NE(cluster_, nullptr);
  }

  Ticket Take() { return ClientTest::Take(cluster_.get()); }

  void ExpectTicket(const absl::StatusOr<std::optional<Ticket>>& ticket,
                    uint64_t sequence) {
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    ASSERT_TRUE(ticket->has_value());
    EXPECT_EQ((*ticket)->sequence, PushSequence(sequence));
    EXPECT_EQ((*ticket)->index, TicketOf(sequence).index());
  }

  // Makes the push of a ticket be applied, with 8 examples and a loss of 0.25.
  void Spend(const Ticket& ticket) {
    const std::vector<float> a(6), b(8);
    auto push = cluster_->StartPush(ticket, at_);
    EXPECT_TRUE(push->Add(0, a).ok());
    EXPECT_TRUE(push->Add(1, b).ok());
    EXPECT_TRUE(push->Contribute({0, 8, 1, 0.25}).ok());
    const auto applied = push->Await(Late());
    EXPECT_TRUE(applied.ok()) << applied.status();
  }

  std::vector<proto::TakeTicketRequest> Requests() {
    return ps(0).take_ticket.requests();
  }

  static std::vector<uint64_t> SpentIn(
      const proto::TakeTicketRequest& request) {
    std::vector<uint64_t> sequences;
    for (const proto::SpentTicket& spent : request.spent()) {
      sequences.push_back(spent.sequence());
    }
    return sequences;
  }

  Parameters at_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(TicketsTest, BringsATicket) {
  ps(0).take_ticket.Do([](int, const auto& request, auto* response) {
    *response->mutable_ticket() = TicketOf(request.sequence());
    response->set_global_step(7);
    return absl::OkStatus();
  });
  auto request = cluster_->StartTakeTicket();
  const auto ticket = request->Await(Late());
  ExpectTicket(ticket, 1);
  EXPECT_EQ((*ticket)->global_step, GlobalStep(7));
  ASSERT_THAT((*ticket)->scalars, SizeIs(1));
  EXPECT_EQ((*ticket)->scalars[0].learning_rate(), 0.5f);
  EXPECT_EQ((*ticket)->loss_scale, LossScaleAt(1));
  ExpectTicket(request->Await(Late()), 1);

  ASSERT_THAT(Requests(), SizeIs(1));
  EXPECT_EQ(Requests()[0].sender().incarnation(), kIncarnation);
  EXPECT_EQ(Requests()[0].sequence(), 1);
  EXPECT_EQ(Requests()[0].acked_through(), 0);
  EXPECT_EQ(Requests()[0].wait_ms(), 100);
  EXPECT_EQ(Take().sequence, PushSequence(2));
}

TEST_F(TicketsTest, IsAskedForAgainUntilItIsThere) {
  ps(0).take_ticket.Do([](int call, const auto& request, auto* response) {
    if (call == 1) return absl::UnavailableError("lost");
    if (call == 3) *response->mutable_ticket() = TicketOf(request.sequence());
    return absl::OkStatus();
  });
  EXPECT_EQ(Take().sequence, PushSequence(1));
  ASSERT_THAT(Requests(), SizeIs(4));
  for (const proto::TakeTicketRequest& request : Requests()) {
    EXPECT_EQ(request.SerializeAsString(), Requests()[0].SerializeAsString());
  }
}

// Shards apply pushes in the order of their sequences: a later one must not
// have its ticket before an earlier one.
TEST_F(TicketsTest, OneIsAskedForAtATime) {
  ps(0).take_ticket.Do([](int call, const auto& request, auto* response) {
    if (call >= 2) *response->mutable_ticket() = TicketOf(request.sequence());
    return absl::OkStatus();
  });
  auto first = cluster_->StartTakeTicket();
  auto second = cluster_->StartTakeTicket();
  auto third = cluster_->StartTakeTicket();
  ExpectTicket(third->Await(Late()), 3);
  ExpectTicket(second->Await(Late()), 2);
  ExpectTicket(first->Await(Late()), 1);
  std::vector<uint64_t> asked;
  for (const auto& request : Requests()) asked.push_back(request.sequence());
  EXPECT_THAT(asked, ElementsAre(1, 1, 1, 2, 3));
}

TEST_F(TicketsTest, ThereAreNoneWhenTheJobIsDone) {
  ps(0).take_ticket.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::DONE);
    return absl::OkStatus();
  });
  auto first = cluster_->StartTakeTicket();
  auto second = cluster_->StartTakeTicket();
  for (Cluster::TicketRequest* request : {first.get(), second.get()}) {
    const auto ticket = request->Await(Late());
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    EXPECT_FALSE(ticket->has_value());
  }
  const auto later = cluster_->StartTakeTicket()->Await(Late());
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_FALSE(later->has_value());
  EXPECT_THAT(Requests(), SizeIs(1));
}

TEST_F(TicketsTest, AFailedJobTellsItsReason) {
  ps(0).take_ticket.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::FAILED);
    response->mutable_state()->set_reason("/job:worker/task:0 was lost");
    return absl::OkStatus();
  });
  EXPECT_EQ(cluster_->StartTakeTicket()->Await(Late()).status(),
            absl::AbortedError("/job:worker/task:0 was lost"));
}

TEST_F(TicketsTest, AWorkerThatIsShutOutGetsNone) {
  ps(0).take_ticket.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::FENCED);
    return absl::OkStatus();
  });
  const absl::Status shut_out = absl::AbortedError(
      absl::StrCat(PsName(0),
                   ": this worker has been fenced; its tickets go "
                   "to others"));
  auto first = cluster_->StartTakeTicket();
  auto second = cluster_->StartTakeTicket();
  EXPECT_EQ(second->Await(Late()).status(), shut_out);
  EXPECT_EQ(first->Await(Late()).status(), shut_out);
  EXPECT_EQ(cluster_->StartTakeTicket()->Await(Late()).status(), shut_out);
}

TEST_F(TicketsTest, AReaderMayTakeNone) {
  auto reader = ConnectReady(OptionsFor(kReader));
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      reader->StartTakeTicket()->Await(Late()).status()));
  EXPECT_EQ(ps(0).take_ticket.num_calls(), 0);
}

// The next request takes the sequence: shards would wait forever for one
// without a ticket.
TEST_F(TicketsTest, ARefusalIsAnErrorAndLeavesNoGap) {
  ps(0).take_ticket.Do([](int call, const auto& request, auto* response) {
    if (call == 0) return absl::ResourceExhaustedError("2 tickets are held");
    *response->mutable_ticket() = TicketOf(request.sequence());
    return absl::OkStatus();
  });
  auto refused = cluster_->StartTakeTicket();
  const absl::Status error = absl::ResourceExhaustedError(
      absl::StrCat(PsName(0), ": 2 tickets are held"));
  EXPECT_EQ(refused->Await(Late()).status(), error);
  EXPECT_EQ(refused->Await(Late()).status(), error);
  EXPECT_EQ(Take().sequence, PushSequence(1));
  EXPECT_THAT(Requests(), SizeIs(2));
}

TEST_F(TicketsTest, OneThatIsLetGoOfIsTheNexts) {
  // The request is destroyed before or after the answer.
  auto let_go = cluster_->StartTakeTicket();
  ps(0).take_ticket.AwaitCalls(1);
  let_go.reset();
  EXPECT_EQ(Take().sequence, PushSequence(1));
  EXPECT_THAT(Requests(), SizeIs(1));

  // If the request was destroyed after the answer, the first ticket must have
  // arrived, because the second one has.
  let_go = cluster_->StartTakeTicket();
  auto later = cluster_->StartTakeTicket();
  ExpectTicket(later->Await(Late()), 3);
  let_go.reset();
  EXPECT_EQ(Take().sequence, PushSequence(2));
  EXPECT_THAT(Requests(), SizeIs(3));
}

TEST_F(TicketsTest, OneThatIsLetGoOfWhileItIsParkedIsAskedForAgain) {
  absl::Notification let_go_of;
  ps(0).take_ticket.Do([&](int call, const auto& request, auto* response) {
    if (call == 0) {
      let_go_of.WaitForNotification();
    } else {
      *response->mutable_ticket() = TicketOf(request.sequence());
    }
    return absl::OkStatus();
  });
  auto request = cluster_->StartTakeTicket();
  ps(0).take_ticket.AwaitCalls(1);
  request.reset();
  let_go_of.Notify();
  EXPECT_EQ(Take().sequence, PushSequence(1));
  cluster_.reset();
  StopPs();
}

TEST_F(TicketsTest, ADeadlineNamesWhatIsWaitedForAndEndsTheRequest) {
  absl::Notification late;
  ps(0).take_ticket.Do([&](int call, const auto& request, auto* response) {
    if (call < 2) {
      response->set_waiting_for("/job:worker/task:0");
      return absl::OkStatus();
    }
    late.WaitForNotification();
    *response->mutable_ticket() = TicketOf(request.sequence());
    return absl::OkStatus();
  });
  auto request = cluster_->StartTakeTicket();
  ps(0).take_ticket.AwaitCalls(3);
  const absl::Status status = request->Await(After(50)).status();
  EXPECT_EQ(status, absl::DeadlineExceededError(absl::StrCat(
                        "timed out waiting for a ticket from ", PsName(0),
                        ", which waits for /job:worker/task:0")));
  late.Notify();
  EXPECT_EQ(Take().sequence, PushSequence(1));
  EXPECT_EQ(request->Await(Late()).status(), status);
  request.reset();
  cluster_.reset();
  StopPs();
}

TEST_F(TicketsTest, IsDestroyedWhileItIsAskedFor) {
  ps(0).take_ticket.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  auto first = cluster_->StartTakeTicket();
  auto second = cluster_->StartTakeTicket();
  ps(0).take_ticket.AwaitCalls(1);
  second.reset();
  first.reset();
  cluster_.reset();
  EXPECT_THAT(Requests(), SizeIs(1));
}

// [A4] One call for each push.
TEST_F(TicketsTest, TheNextRequestTellsWhatIsSpent) {
  ps(1).apply.Do([](int call, const auto&, auto* response) {
    response->set_verdict(proto::ACCEPTED);
    response->set_staleness(3 + call);
    return absl::OkStatus();
  });
  for (int i = 0; i < 3; ++i) Spend(Take());
  ASSERT_THAT(Requests(), SizeIs(3));
  EXPECT_THAT(Requests()[0].spent(), SizeIs(0));
  ASSERT_THAT(Requests()[1].spent(), SizeIs(1));
  EXPECT_EQ(Requests()[1].spent(0).sequence(), 1);
  EXPECT_EQ(Requests()[1].spent(0).examples(), 8);
  EXPECT_EQ(Requests()[1].spent(0).loss(), 0.25);
  EXPECT_EQ(Requests()[1].spent(0).staleness(), 3);
  EXPECT_THAT(SpentIn(Requests()[2]), ElementsAre(2));

  // acked_through includes a push once it is booked, not before.
  EXPECT_EQ(Requests()[1].acked_through(), 0);
  EXPECT_EQ(Requests()[2].acked_through(), 1);
}

// The request may be parked until just this is reported.
TEST_F(TicketsTest, WhatIsSpentIsToldAtOnceWhileARequestIsUnderWay) {
  const Ticket first = Take();
  absl::Notification told;
  ps(0).take_ticket.Do([&](int, const auto& request, auto* response) {
    if (request.sequence() == 0) {
      EXPECT_THAT(SpentIn(request), ElementsAre(1));
      EXPECT_EQ(request.wait_ms(), 0);
      told.Notify();
      return absl::OkStatus();
    }
    told.WaitForNotification();
    *response->mutable_ticket() = TicketOf(request.sequence());
    return absl::OkStatus();
  });
  auto second = cluster_->StartTakeTicket();
  Spend(first);
  ExpectTicket(second->Await(Late()), 2);
  second.reset();
  cluster_.reset();
  StopPs();
}

TEST_F(TicketsTest, WhatIsSpentIsToldSoonWhenNobodyAsks) {
  timing.tell_spent = absl::Milliseconds(1);
  Reconnect();
  Spend(Take());
  ps(0).take_ticket.AwaitCalls(2);
  EXPECT_EQ(Requests()[1].sequence(), 0);
  EXPECT_THAT(SpentIn(Requests()[1]), ElementsAre(1));
  // The same again: the time starts anew for each spent ticket.
  Spend(Take());
  ps(0).take_ticket.AwaitCalls(4);
  EXPECT_THAT(SpentIn(Requests()[3]), ElementsAre(2));
}

TEST_F(TicketsTest, WhatIsSpentIsToldAgainUntilItIsBooked) {
  const Ticket first = Take();
  ps(0).take_ticket.Do([](int call, const auto& request, auto* response) {
    // The answer to call 1 is lost, call 3 is refused.
    if (call == 1) return absl::UnavailableError("lost");
    if (call == 3) return absl::InternalError("no");
    *response->mutable_ticket() = TicketOf(request.sequence());
    return absl::OkStatus();
  });
  Spend(first);
  const Ticket second = Take();
  EXPECT_EQ(Requests()[1].SerializeAsString(),
            Requests()[2].SerializeAsString());
  EXPECT_THAT(SpentIn(Requests()[2]), ElementsAre(1));
  Spend(second);
  EXPECT_TRUE(
      absl::IsInternal(cluster_->StartTakeTicket()->Await(Late()).status()));
  EXPECT_THAT(SpentIn(Requests()[3]), ElementsAre(2));
  Take();
  EXPECT_THAT(SpentIn(Requests()[4]), ElementsAre(2));
  EXPECT_EQ(Requests()[4].acked_through(), 1);
}

// Not the answer to a request that was sent before the ticket was spent.
TEST_F(TicketsTest, OnlyAnAnswerToWhatToldOfItBooksIt) {
  const Ticket first = Take();
  const Ticket second = Take();
  absl::Notification telling;
  absl::Notification finish;
  ps(0).take_ticket.Do([&](int, const auto& request, auto* response) {
    if (request.sequence() == 0) {
      telling.Notify();
      finish.WaitForNotification();
      return absl::OkStatus();
    }
    telling.WaitForNotification();
    *response->mutable_ticket() = TicketOf(request.sequence());
    return absl::OkStatus();
  });
  Spend(first);
  auto third = cluster_->StartTakeTicket();
  Spend(second);
  ExpectTicket(third->Await(Late()), 3);
  Take();
  ASSERT_THAT(Requests(), SizeIs(5));
  for (int i = 2; i < 5; ++i) {
    switch (Requests()[i].sequence()) {
      case 3:
        EXPECT_THAT(SpentIn(Requests()[i]), ElementsAre(1));
        break;
      case 0:
        EXPECT_THAT(SpentIn(Requests()[i]), ElementsAre(1, 2));
        break;
      case 4:
        EXPECT_THAT(SpentIn(Requests()[i]), ElementsAre(2));
        EXPECT_EQ(Requests()[i].acked_through(), 1);
        break;
    }
  }
  finish.Notify();
  third.reset();
  cluster_.reset();
  StopPs();
}

// An answer with a verdict does not acknowledge what was reported.
TEST_F(TicketsTest, AWorkerThatIsShutOutHasNothingBooked) {
  Spend(Take());
  ps(0).take_ticket.Do([](int, const auto&, auto* response) {
    response->set_verdict(proto::FENCED);
    return absl::OkStatus();
  });
  EXPECT_TRUE(
      absl::IsAborted(cluster_->StartTakeTicket()->Await(Late()).status()));
  auto push = cluster_->StartPush(Ticket{PushSequence(2)}, at_);
  ASSERT_TRUE(push->Contribute({}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_EQ(ps(0).apply.requests().back().acked_through(), 0);
}

}  // namespace
}  // namespace holdfast::client
