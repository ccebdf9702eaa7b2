// SPDX-License-Identifier: Apache-2.0

// The values of a pull, variable by variable as they arrive
// (Cluster::Pull::AwaitVariable), and after a verdict (Push::AwaitVerdict).

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/pull.h"
#include "client/push.h"
#include "client/rpc.h"
#include "client/testing/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A pull of version 5 is a and b[0,2) for ps 0, and b[2,4) for ps 1.
class ArrivalTest : public GenerationTest {
 protected:
  void StartPull(int64_t sent_part_bytes = 8) {
    pull_ = client::StartPull(
        MakeGeneration(2, 8, /*asynchronous=*/false, sent_part_bytes),
        GlobalStep(5), &values_);
  }

  // Answers the oldest pull of the ps: all values are `value`, and the loss
  // scale is 8 times the version.
  void AnswerPull(uint32_t ps, uint64_t version, float value) {
    auto pull = transport_.Take(rpc::kPull, ps);
    WithTensors<proto::PullResponse> response;
    response.message.set_version(version);
    response.message.set_loss_scale(8.0f * version);
    for (const proto::ReadRange& range : pull.request.ranges()) {
      response.tensors.push_back(PieceOf(range, value));
    }
    pull.Answer(response);
  }

  // The variable must have been decided. Returns the version; 0 if the pull was
  // superseded.
  uint64_t VersionOf(size_t variable) {
    EXPECT_TRUE(pull_->HasVariable(variable));
    const auto arrived = pull_->AwaitVariable(variable, absl::InfinitePast());
    EXPECT_TRUE(arrived.ok()) << arrived.status();
    if (!arrived.ok() || !arrived->has_value()) return 0;
    EXPECT_EQ((*arrived)->loss_scale, 8 * (*arrived)->version.value());
    return (*arrived)->version.value();
  }

  // Expects that the pull is complete, at this version.
  void ExpectAllAt(uint64_t version) {
    EXPECT_TRUE(pull_->done());
    EXPECT_EQ(pull_->Await(absl::InfinitePast()), absl::OkStatus());
    EXPECT_EQ(values_.version, GlobalStep(version));
    EXPECT_EQ(values_.loss_scale, 8 * version);
  }

  Parameters values_;
  std::unique_ptr<Cluster::Pull> pull_;
};

TEST_F(ArrivalTest, HandsOutEachVariableWhenAllItsPartsAreThere) {
  StartPull();
  EXPECT_FALSE(pull_->HasVariable(0));
  AnswerPull(0, 5, 1);
  EXPECT_EQ(VersionOf(0), 5);
  EXPECT_THAT(values_.Of(0), ElementsAre(1, 1));
  AnswerPull(1, 5, 3);
  EXPECT_FALSE(pull_->HasVariable(1)) << "half of b is missing";
  EXPECT_FALSE(pull_->done());
  AnswerPull(0, 5, 2);
  EXPECT_EQ(VersionOf(1), 5);
  EXPECT_THAT(values_.Of(1), ElementsAre(2, 2, 3, 3));
  ExpectAllAt(5);
}

TEST_F(ArrivalTest, WaitsForAVariable) {
  StartPull();
  transport_.set_on_wait([this] { AnswerPull(0, 5, 1); });
  const auto arrived = pull_->AwaitVariable(0, absl::InfiniteFuture());
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  ASSERT_TRUE(arrived->has_value());
  EXPECT_EQ((*arrived)->version, GlobalStep(5));
}

TEST_F(ArrivalTest, BeforeAnyIsHandedOutANewerVersionIsPulled_R7) {
  StartPull();
  AnswerPull(0, 5, 1);
  AnswerPull(1, 6, 2);
  EXPECT_FALSE(pull_->HasVariable(0));
  AnswerPull(0, 6, 3);
  AnswerPull(0, 6, 4);
  EXPECT_EQ(VersionOf(0), 6);
  EXPECT_EQ(VersionOf(1), 6);
  ExpectAllAt(6);
  EXPECT_THAT(values_.Of(0), ElementsAre(4, 4));
}

TEST_F(ArrivalTest, ANewerVersionSupersedesWhatWasHandedOut) {
  StartPull();
  AnswerPull(0, 5, 1);
  EXPECT_EQ(VersionOf(0), 5);
  AnswerPull(1, 6, 2);
  EXPECT_EQ(VersionOf(1), 0);
  EXPECT_EQ(VersionOf(0), 0);
  AnswerPull(0, 5, 3);
  // Nothing is pulled over what may still be read.
  EXPECT_THAT(transport_.names(), IsEmpty());
  EXPECT_FALSE(pull_->done());
  EXPECT_THAT(values_.Of(0), ElementsAre(1, 1));

  pull_->Resume();
  EXPECT_THAT(transport_.names(), SizeIs(3));
  EXPECT_FALSE(pull_->HasVariable(0));
  AnswerPull(0, 6, 4);
  AnswerPull(0, 6, 4);
  EXPECT_EQ(VersionOf(0), 6);
  EXPECT_THAT(values_.Of(0), ElementsAre(4, 4));
  AnswerPull(1, 6, 4);
  EXPECT_EQ(VersionOf(1), 6);
  ExpectAllAt(6);
}

TEST_F(ArrivalTest, AwaitPullsTheNewerVersion) {
  StartPull();
  AnswerPull(0, 5, 1);
  EXPECT_EQ(VersionOf(0), 5);
  AnswerPull(1, 6, 2);
  // This part arrives at a version that is newer still.
  AnswerPull(0, 7, 2);
  EXPECT_EQ(VersionOf(1), 0);
  int answers = 0;
  transport_.set_on_wait([&] {
    AnswerPull(0, 7, 3);
    AnswerPull(0, 7, 3);
    AnswerPull(1, 7, 3);
    ++answers;
  });
  EXPECT_EQ(pull_->Await(absl::InfiniteFuture()), absl::OkStatus());
  EXPECT_EQ(answers, 1);
  ExpectAllAt(7);
  EXPECT_THAT(values_.Of(0), ElementsAre(3, 3));
}

// [H7] What has arrived from the ps is requested again in smaller parts.
TEST_F(ArrivalTest, APartThatIsNotLentSupersedesWhatWasHandedOut) {
  StartPull(/*sent_part_bytes=*/4);
  AnswerPull(0, 5, 1);
  EXPECT_EQ(VersionOf(0), 5);
  AnswerPull(1, 5, 2);
  transport_.Take(rpc::kPull, 0).Answer(absl::OutOfRangeError("not lent"));
  EXPECT_EQ(VersionOf(1), 0);
  EXPECT_THAT(transport_.names(), IsEmpty());
  pull_->Resume();
  EXPECT_THAT(transport_.names(), SizeIs(4));
  for (int part = 0; part < 4; ++part) AnswerPull(0, 5, 3);
  EXPECT_EQ(VersionOf(0), 5);
  EXPECT_EQ(VersionOf(1), 5);
  ExpectAllAt(5);
  EXPECT_THAT(values_.Of(1), ElementsAre(3, 3, 2, 2));
}

TEST_F(ArrivalTest, ReturnsTheErrorOfThePull) {
  StartPull();
  AnswerPull(0, 5, 1);
  EXPECT_EQ(VersionOf(0), 5);
  transport_.Take(rpc::kPull, 1).Answer(absl::NotFoundError("no b"));
  EXPECT_TRUE(pull_->HasVariable(1));
  const auto arrived = pull_->AwaitVariable(1, absl::InfinitePast());
  EXPECT_TRUE(absl::IsNotFound(arrived.status())) << arrived.status();
  EXPECT_EQ(pull_->Await(absl::InfinitePast()), arrived.status());
}

TEST_F(ArrivalTest, RefusesWhatHasNoVersion) {
  StartPull();
  EXPECT_TRUE(absl::IsInvalidArgument(
      pull_->AwaitVariable(2, absl::InfinitePast()).status()));
  EXPECT_FALSE(pull_->HasVariable(1)) << "the pull goes on";

  Parameters rows;
  rows.WantVariables(false);
  const auto of_rows =
      client::StartPull(MakeGeneration(2, 8), GlobalStep(5), &rows);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      of_rows->AwaitVariable(0, absl::InfinitePast()).status()));

  Parameters values;
  const auto asynchronous = client::StartPull(
      MakeGeneration(2, 8, /*asynchronous=*/true), GlobalStep(5), &values);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      asynchronous->AwaitVariable(0, absl::InfinitePast()).status()));
}

class VerdictTest : public ArrivalTest {
 protected:
  void StartPush(uint32_t num_ps) {
    push_ = client::StartPush(MakeGeneration(num_ps, 1 << 20), GlobalStep(4));
    EXPECT_EQ(push_->Add(1, b_), absl::OkStatus());
    EXPECT_EQ(push_->Add(0, a_), absl::OkStatus());
    Contribution contribution;
    contribution.examples = 8;
    EXPECT_EQ(push_->Contribute(contribution, &values_), absl::OkStatus());
  }
  void Acknowledge() {
    transport_.Take(rpc::kPush, 0).Answer(proto::PushResponse());
    transport_.Take(rpc::kPush, 1).Answer(proto::PushResponse());
  }
  void Answer(proto::Verdict verdict) {
    proto::ContributeResponse response;
    response.set_verdict(verdict);
    transport_.Take(rpc::kContribute).Answer(response);
  }
  void ExpectVerdict(proto::Verdict verdict) {
    const auto outcome = push_->AwaitVerdict(absl::InfinitePast(), &pull_);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->verdict, verdict);
  }

  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5, 6};
  std::unique_ptr<Cluster::Push> push_;
};

TEST_F(VerdictTest, LeavesTheRestOfThePullToTheCaller) {
  StartPush(2);
  Acknowledge();
  AnswerPull(1, 5, 2);
  Answer(proto::ACCEPTED);
  EXPECT_FALSE(push_->done());
  ExpectVerdict(proto::ACCEPTED);
  ASSERT_NE(pull_, nullptr);
  EXPECT_TRUE(push_->done());
  push_.reset();
  EXPECT_FALSE(pull_->HasVariable(0));
  AnswerPull(0, 5, 1);
  EXPECT_EQ(VersionOf(0), 5);
  EXPECT_EQ(VersionOf(1), 5);
  ExpectAllAt(5);
}

TEST_F(VerdictTest, AwaitReturnsTheSameVerdictAfterwards) {
  StartPush(2);
  Acknowledge();
  Answer(proto::STALE);
  ExpectVerdict(proto::STALE);
  const auto outcome = push_->Await(absl::InfinitePast());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->verdict, proto::STALE);
}

TEST_F(VerdictTest, InOneCallNothingIsLeft) {
  StartPush(1);
  {
    // A call that is not over keeps the gradients.
    auto exchange = transport_.Take(rpc::kPushPull);
    WithTensors<proto::PushPullResponse> response;
    response.message.set_verdict(proto::ACCEPTED);
    response.message.set_version(5);
    for (const proto::ReadRange& range : exchange.request.message.ranges()) {
      response.tensors.push_back(PieceOf(range, 1));
    }
    exchange.Answer(response);
  }
  ExpectVerdict(proto::ACCEPTED);
  EXPECT_EQ(pull_, nullptr);
  EXPECT_EQ(values_.version, GlobalStep(5));
  EXPECT_THAT(values_.Of(0), ElementsAre(1, 1));
}

TEST_F(VerdictTest, NothingFollowsAFencedPush) {
  StartPush(2);
  Acknowledge();
  Answer(proto::FENCED);
  ExpectVerdict(proto::FENCED);
  EXPECT_EQ(pull_, nullptr);
}

TEST_F(VerdictTest, AnErrorLeavesNothing) {
  StartPush(2);
  Acknowledge();
  transport_.Take(rpc::kContribute).Answer(absl::InternalError("lost"));
  const auto outcome = push_->AwaitVerdict(absl::InfinitePast(), &pull_);
  EXPECT_TRUE(absl::IsInternal(outcome.status())) << outcome.status();
  EXPECT_EQ(pull_, nullptr);
  EXPECT_EQ(push_->Await(absl::InfinitePast()).status(), outcome.status());
}

}  // namespace
}  // namespace holdfast::client
