// SPDX-License-Identifier: Apache-2.0

// Receipts of shards that a worker passes on, and ps that hold nothing of a
// push.
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/client_test_base.h"
#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReceiptsTest : public ClientTest {
 protected:
  void SetUp() override {
    for (const uint32_t i : {0, 1}) {
      // Derived from the push and the ps; given when the last part has arrived.
      ps(i).push.Do([this, i](int, const auto& request, auto* response) {
        absl::MutexLock lock(&mutex_);
        std::set<uint32_t>& here = here_[{i, request.sequence()}];
        here.insert(request.part());
        if (here.size() == request.num_parts()) {
          response->set_receipt(100 * request.sequence() + i + 1);
        }
        return absl::OkStatus();
      });
      ps(i).apply.Do([i](int, const auto& request, auto* response) {
        response->set_verdict(proto::ACCEPTED);
        response->set_receipt(1000 * request.sequence() + i + 1);
        return absl::OkStatus();
      });
    }
    ps(0).take_ticket.Do([](int, const auto& request, auto* response) {
      if (request.sequence() != 0) {
        *response->mutable_ticket() = TicketOf(request.sequence());
        response->mutable_ticket()->set_receipt(7 * request.sequence());
      }
      return absl::OkStatus();
    });
  }
  void TearDown() override {
    cluster_.reset();
    StopPs();
  }
  void Connect() {
    Cluster::Options options = OptionsFor(kWorker);
    options.part_bytes = 16;
    cluster_ = ConnectReady(options);
    ASSERT_NE(cluster_, nullptr);
  }
  // All variables are on ps 0, in a cluster of two.
  void PlaceAllOnPs0() {
    ps(0).place.Do([this](int, const auto&, auto* response) {
      AnswerPlacement(response);
      for (proto::Slice& slice : *response->mutable_slices()) slice.set_ps(0);
      if (asynchronous) {
        response->mutable_declaration()
            ->mutable_consistency()
            ->mutable_asynchronous();
      }
      return absl::OkStatus();
    });
  }
  static void AddAll(Cluster::Push* push) {
    static const std::vector<float> a(6, 1), b(8, 2);
    ASSERT_TRUE(push->Add(1, b).ok());
    ASSERT_TRUE(push->Add(0, a).ok());
  }

  absl::Mutex mutex_;
  // The parts that have arrived, by ps and sequence.
  std::map<std::pair<uint32_t, uint64_t>, std::set<uint32_t>> here_
      ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ReceiptsTest, AnOfferHasThoseOfEveryShard) {
  Connect();
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  ASSERT_TRUE(push->Contribute({1, 8}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_THAT(ps(0).contribute.requests().back().receipts(),
              ElementsAre(101, 102));

  // The same if the push is offered separately.
  push = cluster_->StartPush(GlobalStep(1));
  AddAll(push.get());
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  ASSERT_TRUE(push->Contribute({1, 8}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_THAT(ps(0).contribute.requests().back().receipts(),
              ElementsAre(201, 202));

  // A push without examples has no receipts.
  push = cluster_->StartPush(GlobalStep(2));
  AddAll(push.get());
  ASSERT_TRUE(push->AwaitHeld(Late()).ok());
  ASSERT_TRUE(push->Contribute({1, 0}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_THAT(ps(0).contribute.requests().back().receipts(), IsEmpty());
}

// The receipt comes again with the answer to the part that is resent.
TEST_F(ReceiptsTest, AReceiptMayBeLostOnce) {
  std::set<uint32_t> parts;
  absl::Mutex mutex;
  ps(0).push.Do([&](int, const auto& request, auto* response) {
    absl::MutexLock lock(&mutex);
    const bool again = !parts.insert(request.part()).second;
    if (parts.size() < request.num_parts()) return absl::OkStatus();
    if (!again) return absl::UnavailableError("the answer is lost");
    response->set_receipt(55);
    return absl::OkStatus();
  });
  Connect();
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  ASSERT_TRUE(push->Contribute({1, 8}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_THAT(ps(0).contribute.requests().back().receipts(),
              ElementsAre(55, 102));
}

TEST_F(ReceiptsTest, AnApplicationHasThoseOfShardsAndTicket) {
  asynchronous = true;
  Connect();
  Parameters at;
  at.versions.resize(2);
  auto push = cluster_->StartPush(Take(cluster_.get()), at);
  AddAll(push.get());
  ASSERT_TRUE(push->Contribute({0, 32, 1, 0}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  for (const uint32_t i : {0, 1}) {
    const proto::ApplyRequest request = ps(i).apply.requests().back();
    EXPECT_EQ(request.ticket_receipt(), 7);
    EXPECT_THAT(request.receipts(), ElementsAre(101, 102));
  }
  // A push without examples has only the ticket's receipt.
  push = cluster_->StartPush(Take(cluster_.get()), at);
  ASSERT_THAT(ps(0).take_ticket.requests().back().spent(), SizeIs(1));
  EXPECT_THAT(ps(0).take_ticket.requests().back().spent(0).receipts(),
              ElementsAre(1001, 1002));
  ASSERT_TRUE(push->Contribute({0, 0, 1, 0}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_EQ(ps(1).apply.requests().back().ticket_receipt(), 14);
  EXPECT_THAT(ps(1).apply.requests().back().receipts(), IsEmpty());
}

TEST_F(ReceiptsTest, AnExchangeHasTheTicketsAndBringsTheApplications) {
  asynchronous = true;
  num_ps = 1;
  ps(0).push_pull.Do([](int, const auto& request, auto* response) {
    const absl::Status status = AnswerPushPull(request, 1, response);
    response->set_receipt(77);
    return status;
  });
  cluster_ = ConnectReady(OptionsFor(kWorker));
  ASSERT_NE(cluster_, nullptr);
  Parameters at;
  at.versions.resize(1);
  auto push = cluster_->StartPush(Take(cluster_.get()), at);
  AddAll(push.get());
  ASSERT_TRUE(push->Contribute({0, 32, 1, 0}).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_EQ(ps(0).push_pull.requests().back().application().ticket_receipt(),
            7);
  Take(cluster_.get());
  EXPECT_THAT(ps(0).take_ticket.requests().back().spent(0).receipts(),
              ElementsAre(77));
}

TEST_F(ReceiptsTest, APsThatHoldsNothingIsNotSpokenTo) {
  PlaceAllOnPs0();
  Connect();
  auto push = cluster_->StartPush(GlobalStep(0));
  AddAll(push.get());
  Parameters next;
  ASSERT_TRUE(push->Contribute({1, 8}, &next).ok());
  ASSERT_TRUE(push->Await(Late()).ok());
  EXPECT_THAT(ps(0).contribute.requests().back().receipts(), ElementsAre(101));
  EXPECT_EQ(next.version, GlobalStep(1));
  EXPECT_THAT(next.versions, ElementsAre(GlobalStep(1), GlobalStep(1)));
  EXPECT_EQ(ps(1).push.num_calls(), 0);
  EXPECT_EQ(ps(1).pull.num_calls(), 0);
}

TEST_F(ReceiptsTest, APsThatHoldsNothingAppliesNothing) {
  asynchronous = true;
  PlaceAllOnPs0();
  Connect();
  Parameters at;
  at.versions.resize(2);
  auto push = cluster_->StartPush(Take(cluster_.get()), at);
  AddAll(push.get());
  ASSERT_TRUE(push->Contribute({0, 32, 1, 0}, &at).ok());
  const auto applied = push->Await(Late());
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->verdict, proto::ACCEPTED);
  Take(cluster_.get());
  EXPECT_THAT(ps(0).take_ticket.requests().back().spent(0).receipts(),
              ElementsAre(1001, 0));
  EXPECT_EQ(ps(1).push.num_calls(), 0);
  EXPECT_EQ(ps(1).apply.num_calls(), 0);
  EXPECT_EQ(ps(1).pull.num_calls(), 0);
}

}  // namespace
}  // namespace holdfast::client
