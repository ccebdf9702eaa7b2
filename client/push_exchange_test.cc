// SPDX-License-Identifier: Apache-2.0
#include "client/push_exchange.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/testing/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Adds nothing to requests.
class NoFollowUp final : public FollowUp {
 public:
  absl::Status Check(const Contribution&) const override {
    return absl::OkStatus();
  }
  void Start(const Contribution&) override { ADD_FAILURE(); }
  void FillIn(const Contribution& contribution,
              proto::PushPullRequest* request) const override {
    request->mutable_contribution()->set_examples(contribution.examples);
  }
  void Take(const Contribution&, const proto::PushPullResponse&) override {
    ADD_FAILURE();
  }
  GlobalStep next_version() const override { return GlobalStep(8); }
  bool IsFollowed(proto::Verdict) const override { return true; }
  std::string Missing() const override { return ""; }
};

class PushExchangeTest : public GenerationTest {
 protected:
  PushExchangeTest()
      : push_(MakePush(MakeGeneration(1, 1 << 20))),
        gradients_(push_.sequence, push_.layout(), push_.plan(),
                   &push_.generation->encoder, nullptr),
        calls_(push_.generation->context, push_.generation->sender),
        exchange_(&push_, &gradients_, &follow_up_, &calls_,
                  [this](const absl::StatusOr<PushExchange::Answer>& answer) {
                    EXPECT_FALSE(answer_.has_value()) << "told twice";
                    answer_ = answer;
                  }) {
    EXPECT_EQ(gradients_.Take(0, a_), absl::OkStatus());
    EXPECT_EQ(gradients_.Take(1, b_), absl::OkStatus());
  }
  ~PushExchangeTest() override { calls_.Cancel(); }

  void Start(uint64_t examples) {
    Contribution contribution;
    contribution.examples = examples;
    exchange_.Start(contribution, &next_);
  }
  auto Take() { return transport_.Take(rpc::kPushPull); }

  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5, 6};
  Parameters next_;
  PushFacts push_;
  Gradients gradients_;
  CallGroup calls_;
  NoFollowUp follow_up_;
  PushExchange exchange_;
  std::optional<absl::StatusOr<PushExchange::Answer>> answer_;
};

TEST_F(PushExchangeTest, OnlyWhatIsOneMessageToOnePsFits) {
  EXPECT_TRUE(PushExchange::Fits(push_.generation->placement));
  EXPECT_FALSE(PushExchange::Fits(MakeGeneration(1, 8)->placement));
  EXPECT_FALSE(PushExchange::Fits(MakeGeneration(2, 1 << 20)->placement));
}

TEST_F(PushExchangeTest, BringsTheVerdictAndTheValues) {
  Start(8);
  auto call = Take();
  EXPECT_EQ(call.request.message.sequence(), 1);
  EXPECT_EQ(call.request.message.step(), 7);
  EXPECT_EQ(call.request.message.contribution().examples(), 8);
  EXPECT_EQ(call.request.tensors.size(), 3);
  WithTensors<proto::PushPullResponse> response;
  response.message.set_verdict(proto::ACCEPTED);
  response.message.set_version(8);
  response.message.set_loss_scale(4);
  for (const proto::ReadRange& range : call.request.message.ranges()) {
    response.tensors.push_back(PieceOf(range, 0.5f));
  }
  call.Answer(response);
  ASSERT_TRUE(answer_.has_value() && answer_->ok());
  EXPECT_EQ((*answer_)->response.verdict(), proto::ACCEPTED);
  EXPECT_TRUE((*answer_)->brought_next);
  EXPECT_EQ(next_.version, GlobalStep(8));
  EXPECT_THAT(next_.versions, ElementsAre(GlobalStep(8)));
  EXPECT_EQ(next_.loss_scale, 4);
  EXPECT_THAT(next_.All(), ElementsAre(SizeIs(2), SizeIs(4)));
  EXPECT_THAT(next_.Of(1), Each(0.5f));
}

TEST_F(PushExchangeTest, WithoutExamplesNothingIsPushed) {
  Start(0);
  EXPECT_THAT(Take().request.tensors, IsEmpty());
}

TEST_F(PushExchangeTest, WithoutRoomItAsksAgainAfterAPause) {
  Start(8);
  Take().Answer(absl::ResourceExhaustedError("2 pushes are here"));
  {
    absl::MutexLock lock(&push_.context().mutex);
    EXPECT_EQ(exchange_.Missing(), "ps 0: 2 pushes are here");
  }
  EXPECT_FALSE(transport_.Has(rpc::kPushPull));
  transport_.Pass(absl::Milliseconds(20));
  EXPECT_THAT(Take().request.tensors, SizeIs(3));
  EXPECT_FALSE(answer_.has_value());
}

// The shard holds the push; the rest is requested separately.
TEST_F(PushExchangeTest, AnAnswerMayLackTheVerdictOrTheValues) {
  Start(8);
  Take().Answer(WithTensors<proto::PushPullResponse>());
  ASSERT_TRUE(answer_.has_value() && answer_->ok());
  EXPECT_EQ((*answer_)->response.verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_FALSE((*answer_)->brought_next);
  EXPECT_THAT(next_.All(), IsEmpty());
}

TEST_F(PushExchangeTest, ErrorsAreTold) {
  Start(8);
  auto call = Take();
  WithTensors<proto::PushPullResponse> response;
  response.message.set_verdict(proto::ACCEPTED);
  response.tensors.push_back(PieceOf(call.request.message.ranges(0), 1));
  call.Answer(response);
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->status(),
            absl::InternalError(
                "ps 0: 3 ranges were requested, but 1 tensors arrived"));
}

}  // namespace
}  // namespace holdfast::client
