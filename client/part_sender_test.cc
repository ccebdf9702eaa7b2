// SPDX-License-Identifier: Apache-2.0
#include "client/part_sender.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/testing/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PartSenderTest : public GenerationTest {
 protected:
  void Make(int64_t part_bytes, bool asynchronous = false,
            uint32_t num_ps = 2) {
    push_ = MakePush(MakeGeneration(num_ps, part_bytes, asynchronous));
    gradients_ = std::make_unique<Gradients>(
        push_.sequence, push_.layout(), push_.plan(),
        &push_.generation->encoder, nullptr);
    sender_ = std::make_unique<PartSender>(&push_, gradients_.get(), &Calls(),
                                           [this] { ++ends_; });
  }
  ~PartSenderTest() override {
    if (calls_ != nullptr) calls_->Cancel();
  }
  CallGroup& Calls() {
    calls_ = std::make_unique<CallGroup>(push_.generation->context,
                                         push_.generation->sender);
    return *calls_;
  }
  void HandIn(size_t variable) {
    const std::vector<float>& gradient = variable == 0 ? a_ : b_;
    ASSERT_EQ(gradients_->Check(variable, gradient), absl::OkStatus());
    ASSERT_EQ(gradients_->Take(variable, gradient), absl::OkStatus());
    sender_->OnHandedIn(variable);
  }
  void Acknowledge(uint32_t ps, uint64_t receipt = 0) {
    proto::PushResponse response;
    response.set_receipt(receipt);
    transport_.Take(rpc::kPush, ps).Answer(response);
  }
  bool ended() {
    absl::MutexLock lock(&push_.context().mutex);
    return sender_->ended();
  }
  std::string Missing() {
    absl::MutexLock lock(&push_.context().mutex);
    return sender_->Missing();
  }

  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5, 6};
  PushFacts push_;
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<CallGroup> calls_;
  std::unique_ptr<PartSender> sender_;
  int ends_ = 0;
};

TEST_F(PartSenderTest, APartLeavesWhenItsVariablesAreThere) {
  Make(/*part_bytes=*/8);
  sender_->SendAll();
  HandIn(1);
  auto first = transport_.Take(rpc::kPush, 0);
  EXPECT_EQ(first.request.message.sequence(), 1);
  EXPECT_EQ(first.request.message.step(), 7);
  EXPECT_EQ(first.request.message.part(), 0);
  EXPECT_EQ(first.request.message.num_parts(), 2);
  EXPECT_THAT(FloatsOf(first.request.tensors[0]), ElementsAre(3, 4));
  EXPECT_FALSE(transport_.Has(rpc::kPush, 0));
  auto second = transport_.Take(rpc::kPush, 1);
  EXPECT_EQ(second.request.message.num_parts(), 1);
  EXPECT_THAT(FloatsOf(second.request.tensors[0]), ElementsAre(5, 6));
  HandIn(0);
  EXPECT_TRUE(transport_.Has(rpc::kPush, 0));
}

TEST_F(PartSenderTest, NothingLeavesBeforeStart) {
  Make(8);
  HandIn(0);
  HandIn(1);
  EXPECT_THAT(transport_.names(), IsEmpty());
  sender_->SendAll();
  EXPECT_EQ(transport_.names().size(), 3);
}

TEST_F(PartSenderTest, TheLastPartForEachPsIsHeldBack) {
  Make(8);
  sender_->Start();
  HandIn(1);
  HandIn(0);
  // Two of three for ps 0, none for ps 1, which has only one.
  EXPECT_EQ(transport_.names().size(), 1);
  Acknowledge(0);
  EXPECT_FALSE(transport_.Has(rpc::kPush, 0));
  EXPECT_FALSE(transport_.Has(rpc::kPush, 1));
  EXPECT_THAT(sender_->announced(), ElementsAre(2, 0));
  sender_->SendAll();
  Acknowledge(0);
  Acknowledge(1);
  EXPECT_TRUE(ended());
}

// The shard begins anew when it hears of more parts.
TEST_F(PartSenderTest, StartedAgainItHasMorePartsThanBefore) {
  Make(8);
  push_.announced = {5, 0};
  sender_ = std::make_unique<PartSender>(&push_, gradients_.get(), &Calls(),
                                         [this] { ++ends_; });
  sender_->Start();
  HandIn(0);
  HandIn(1);
  sender_->SendAll();
  std::set<uint32_t> parts;
  for (int i = 0; i < 6; ++i) {
    auto part = transport_.Take(rpc::kPush, 0);
    EXPECT_EQ(part.request.message.num_parts(), 6);
    EXPECT_EQ(part.request.tensors.empty(), part.request.message.part() >= 2);
    parts.insert(part.request.message.part());
    part.Answer(proto::PushResponse());
  }
  EXPECT_THAT(parts, ElementsAre(0, 1, 2, 3, 4, 5));
  auto other = transport_.Take(rpc::kPush, 1);
  EXPECT_EQ(other.request.message.num_parts(), 1);
  other.Answer(proto::PushResponse());
  EXPECT_TRUE(ended());
}

TEST_F(PartSenderTest, EndsWithTheLastAcknowledgmentAndKeepsReceipts) {
  Make(8);
  sender_->SendAll();
  HandIn(0);
  HandIn(1);
  Acknowledge(0);
  EXPECT_EQ(Missing(), "the acknowledgment of push 1 by ps 0, ps 1");
  Acknowledge(0, /*receipt=*/101);
  EXPECT_EQ(Missing(), "the acknowledgment of push 1 by ps 1");
  EXPECT_FALSE(ended());
  EXPECT_EQ(ends_, 0);
  Acknowledge(1, 102);
  EXPECT_TRUE(ended());
  EXPECT_EQ(ends_, 1);
  absl::MutexLock lock(&push_.context().mutex);
  EXPECT_THAT(push_.generation->sequences.Receipts(push_.sequence),
              ElementsAre(101, 102));
}

TEST_F(PartSenderTest, OnePartAsksWhetherThereIsRoom) {
  Make(4);  // four parts for ps 0
  sender_->SendAll();
  HandIn(0);
  HandIn(1);
  std::vector<uint32_t> refused;
  for (int i = 0; i < 4; ++i) {
    auto part = transport_.Take(rpc::kPush, 0);
    refused.push_back(part.request.message.part());
    part.Answer(absl::ResourceExhaustedError("2 pushes are here"));
  }
  // In the order in which they became ready.
  EXPECT_THAT(refused, ElementsAre(2, 3, 0, 1));
  EXPECT_FALSE(transport_.Has(rpc::kPush, 0));
  EXPECT_EQ(Missing(),
            "the acknowledgment of push 1 by ps 0, ps 1; ps 0: 2 pushes are "
            "here");
  transport_.Pass(absl::Milliseconds(20));
  auto alone = transport_.Take(rpc::kPush, 0);
  EXPECT_FALSE(transport_.Has(rpc::kPush, 0));
  alone.Answer(proto::PushResponse());
  // The part is kept: the others follow concurrently.
  for (int i = 0; i < 3; ++i) Acknowledge(0);
  EXPECT_EQ(Missing(), "the acknowledgment of push 1 by ps 1");
}

TEST_F(PartSenderTest, KeepsABoundedNumberInFlight) {
  // All six parts are for one ps.
  Make(/*part_bytes=*/4, /*asynchronous=*/false, /*num_ps=*/1);
  sender_->SendAll();
  HandIn(0);
  HandIn(1);
  EXPECT_EQ(transport_.names().size(), 4);
  Acknowledge(0);
  EXPECT_EQ(transport_.names().size(), 4);
  for (int i = 0; i < 5; ++i) Acknowledge(0);
  EXPECT_TRUE(ended());
}

TEST_F(PartSenderTest, AVerdictEndsIt) {
  Make(8);
  sender_->SendAll();
  HandIn(1);
  proto::PushResponse stale;
  stale.set_verdict(proto::STALE);
  transport_.Take(rpc::kPush, 1).Answer(stale);
  EXPECT_EQ(ends_, 1);
  HandIn(0);
  EXPECT_EQ(transport_.names(), std::vector<std::string>{"Push"});
  absl::MutexLock lock(&push_.context().mutex);
  EXPECT_TRUE(sender_->ended());
  EXPECT_EQ(sender_->verdict(), proto::STALE);
  EXPECT_EQ(push_.generation->sequences.acked_through(), push_.sequence);
}

// In an asynchronous job one shard's ACCEPTED says nothing about the others.
TEST_F(PartSenderTest, AnAsynchronousAcceptedIsAnAcknowledgment) {
  Make(1 << 20, /*asynchronous=*/true);
  sender_->SendAll();
  HandIn(0);
  HandIn(1);
  proto::PushResponse accepted;
  accepted.set_verdict(proto::ACCEPTED);
  transport_.Take(rpc::kPush, 0).Answer(accepted);
  EXPECT_FALSE(ended());
  Acknowledge(1);
  absl::MutexLock lock(&push_.context().mutex);
  EXPECT_TRUE(sender_->ended());
  EXPECT_EQ(sender_->verdict(), proto::VERDICT_UNSPECIFIED);
}

TEST_F(PartSenderTest, AnErrorEndsIt) {
  Make(8);
  sender_->SendAll();
  HandIn(1);
  transport_.Take(rpc::kPush, 1).Answer(absl::InvalidArgumentError("no"));
  EXPECT_EQ(ends_, 1);
  absl::MutexLock lock(&push_.context().mutex);
  EXPECT_TRUE(sender_->ended());
  EXPECT_EQ(sender_->error(), absl::InvalidArgumentError("ps 1: no"));
}

TEST_F(PartSenderTest, StoppedItSendsAndHearsNothing) {
  Make(8);
  sender_->SendAll();
  HandIn(1);
  sender_->Stop();
  HandIn(0);
  transport_.Take(rpc::kPush, 0).Answer(absl::InvalidArgumentError("no"));
  Acknowledge(1);
  EXPECT_THAT(transport_.names(), IsEmpty());
  EXPECT_EQ(ends_, 0);
  EXPECT_FALSE(ended());
}

}  // namespace
}  // namespace holdfast::client
