// SPDX-License-Identifier: Apache-2.0

// Parts that were planned to be lent to a ps of this host, are larger than a
// message, and cannot be lent after all are sent in smaller parts
// (docs/protocol/same_host.md, "What is lent").

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/gradients.h"
#include "client/part_sender.h"
#include "client/pull.h"
#include "client/push.h"
#include "client/rpc.h"
#include "client/testing/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status NotLent() {
  return absl::OutOfRangeError("not all of it can be lent");
}

class NotLentTest : public GenerationTest {
 protected:
  // One part for each ps, or parts of `sent_part_bytes` if nothing is lent.
  std::shared_ptr<GenerationState> Make(uint32_t num_ps,
                                        int64_t sent_part_bytes) {
    return MakeGeneration(num_ps, 1 << 20, /*asynchronous=*/false,
                          sent_part_bytes);
  }

  // Answers the oldest pull of the ps with everything that it requests.
  size_t AnswerPull(uint32_t ps, uint64_t version, float value) {
    auto pull = transport_.Take(rpc::kPull, ps);
    WithTensors<proto::PullResponse> response;
    response.message.set_version(version);
    for (const proto::ReadRange& range : pull.request.ranges()) {
      response.tensors.push_back(PieceOf(range, value));
    }
    const size_t ranges = response.tensors.size();
    pull.Answer(response);
    return ranges;
  }

  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5, 6};
  Parameters values_;
};

TEST_F(NotLentTest, APullAsksForPartsOfThatPs) {
  const auto pull = StartPull(Make(2, 8), GlobalStep(5), &values_);
  transport_.Take(rpc::kPull, 0).Answer(NotLent());
  EXPECT_THAT(transport_.names(), SizeIs(3));
  EXPECT_EQ(AnswerPull(0, 5, 1), 1);
  EXPECT_EQ(AnswerPull(1, 5, 2), 1);
  EXPECT_FALSE(pull->done());
  EXPECT_EQ(AnswerPull(0, 5, 3), 1);
  EXPECT_TRUE(pull->done());
  EXPECT_EQ(pull->Await(absl::InfinitePast()), absl::OkStatus());
  EXPECT_EQ(values_.version, GlobalStep(5));
}

// [R7] still holds.
TEST_F(NotLentTest, APullInPartsIsOfOneVersion) {
  const auto pull = StartPull(Make(2, 8), GlobalStep(5), &values_);
  AnswerPull(1, 6, 2);
  transport_.Take(rpc::kPull, 0).Answer(NotLent());
  AnswerPull(0, 6, 1);
  AnswerPull(0, 7, 1);
  EXPECT_FALSE(pull->done());
  AnswerPull(0, 7, 1);
  AnswerPull(1, 7, 1);
  EXPECT_TRUE(pull->done());
  EXPECT_EQ(pull->Await(absl::InfinitePast()), absl::OkStatus());
  EXPECT_EQ(values_.version, GlobalStep(7));
}

TEST_F(NotLentTest, APullWaitsForThePartsThatAreOnTheirWay) {
  const auto generation =
      MakeGeneration(1, 8, /*asynchronous=*/false, /*sent_part_bytes=*/4);
  const auto pull = StartPull(generation, GlobalStep(5), &values_);
  ASSERT_THAT(transport_.names(), SizeIs(3));
  transport_.Take(rpc::kPull, 0).Answer(NotLent());
  transport_.Take(rpc::kPull, 0).Answer(NotLent());
  EXPECT_THAT(transport_.names(), SizeIs(1))
      << "what comes of it goes to the same places";
  AnswerPull(0, 5, 1);
  for (int part = 0; part < 6; ++part) {
    EXPECT_FALSE(pull->done());
    AnswerPull(0, 5, 2);
  }
  EXPECT_TRUE(pull->done());
  EXPECT_EQ(pull->Await(absl::InfinitePast()), absl::OkStatus());
}

TEST_F(NotLentTest, WhatCannotBeSentEitherIsAnError) {
  const auto pull = StartPull(Make(1, 0), GlobalStep(5), &values_);
  transport_.Take(rpc::kPull, 0).Answer(NotLent());
  EXPECT_TRUE(pull->done());
  EXPECT_TRUE(absl::IsOutOfRange(pull->Await(absl::InfinitePast())));
}

class PartsNotLentTest : public NotLentTest {
 protected:
  void MakeSender(uint32_t num_ps, int64_t part_bytes,
                  int64_t sent_part_bytes) {
    push_ = MakePush(MakeGeneration(num_ps, part_bytes, /*asynchronous=*/false,
                                    sent_part_bytes));
    gradients_.emplace(push_.sequence, push_.layout(), push_.plan(),
                       &push_.generation->encoder, nullptr);
    calls_.emplace(push_.generation->context, push_.generation->sender);
    sender_.emplace(&push_, &*gradients_, &*calls_, [this] { ++ends_; });
    sender_->SendAll();
  }
  ~PartsNotLentTest() override {
    if (calls_.has_value()) calls_->Cancel();
  }
  void HandIn(size_t variable) {
    ASSERT_EQ(gradients_->Take(variable, variable == 0 ? a_ : b_),
              absl::OkStatus());
    sender_->OnHandedIn(variable);
  }
  // Acknowledges the next part sent to ps 0: "index of number", and its first
  // element.
  std::pair<std::string, float> Acknowledge() {
    auto sent = transport_.Take(rpc::kPush, 0);
    const proto::PushRequest& request = sent.request.message;
    sent.Answer(proto::PushResponse());
    return {absl::StrCat(request.part(), " of ", request.num_parts()),
            FloatsOf(sent.request.tensors[0])[0]};
  }
  using Part = std::pair<std::string, float>;

  PushFacts push_;
  std::optional<Gradients> gradients_;
  std::optional<CallGroup> calls_;
  std::optional<PartSender> sender_;
  int ends_ = 0;
};

TEST_F(PartsNotLentTest, APushIsSentToThatPsInMoreParts) {
  MakeSender(2, 1 << 20, 8);
  HandIn(0);
  HandIn(1);
  transport_.Take(rpc::kPush, 0).Answer(NotLent());
  EXPECT_THAT(transport_.names(), SizeIs(3));
  EXPECT_EQ(Acknowledge(), Part("0 of 2", 3));
  EXPECT_EQ(Acknowledge(), Part("1 of 2", 1));
  EXPECT_EQ(ends_, 0);
  transport_.Take(rpc::kPush, 1).Answer(proto::PushResponse());
  EXPECT_EQ(ends_, 1);
}

TEST_F(PartsNotLentTest, WhatIsHandedInLaterFollowsInMoreParts) {
  MakeSender(1, 8, 4);
  HandIn(1);
  ASSERT_THAT(transport_.names(), SizeIs(2));
  transport_.Take(rpc::kPush, 0).Answer(NotLent());
  EXPECT_THAT(transport_.names(), SizeIs(1));
  // The part is sent again: the ps dropped it when the first part of the new
  // plan arrived.
  EXPECT_EQ(Acknowledge().first, "1 of 3");
  for (int part = 0; part < 4; ++part) Acknowledge();
  EXPECT_THAT(transport_.names(), IsEmpty());
  EXPECT_EQ(ends_, 0);
  HandIn(0);
  EXPECT_EQ(Acknowledge(), Part("4 of 6", 1));
  EXPECT_EQ(Acknowledge(), Part("5 of 6", 2));
  EXPECT_EQ(ends_, 1);
}

TEST_F(PartsNotLentTest, WhatCannotBeSentEitherIsAnError) {
  MakeSender(1, 1 << 20, 0);
  HandIn(0);
  HandIn(1);
  transport_.Take(rpc::kPush, 0).Answer(NotLent());
  absl::MutexLock lock(&push_.context().mutex);
  EXPECT_TRUE(absl::IsOutOfRange(sender_->error()));
}

// What was one call: the push is sent separately, and the rest as with several
// ps.
TEST_F(NotLentTest, APushThatIsOneCallBecomesSeveral) {
  const auto generation = Make(1, 8);
  const auto push = StartPush(generation, GlobalStep(7));
  EXPECT_EQ(push->Add(0, a_), absl::OkStatus());
  EXPECT_EQ(push->Add(1, b_), absl::OkStatus());
  Contribution contribution;
  contribution.examples = 8;
  EXPECT_EQ(push->Contribute(contribution, &values_), absl::OkStatus());
  transport_.Take(rpc::kPushPull).Answer(NotLent());
  // The loan may have been missing for the values.
  {
    auto lent = transport_.Take(rpc::kPush);
    EXPECT_EQ(lent.request.message.num_parts(), 1);
    lent.Answer(NotLent());
  }
  for (int part = 0; part < 3; ++part) {
    auto sent = transport_.Take(rpc::kPush);
    EXPECT_EQ(sent.request.message.num_parts(), 3);
    sent.Answer(proto::PushResponse());
  }
  proto::ContributeResponse accepted;
  accepted.set_verdict(proto::ACCEPTED);
  accepted.set_global_step(8);
  transport_.Take(rpc::kContribute).Answer(accepted);
  AnswerPull(0, 8, 1);
  EXPECT_TRUE(push->done());
  const auto outcome = push->Await(absl::InfinitePast());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->verdict, proto::ACCEPTED);
  EXPECT_EQ(values_.version, GlobalStep(8));
}

}  // namespace
}  // namespace holdfast::client
