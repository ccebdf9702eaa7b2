// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/broadcast.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kResendAfter = absl::Seconds(5);

// Keeps what is sent, for the test to answer.
class SilentShards : public ShardLinks {
 public:
  struct Sent {
    uint32_t ps;
    proto::RestoreRequest request;
    Reply<ShardResponse> reply;
  };
  void SetAddress(uint32_t, const std::string&) override {}
  void Send(uint32_t ps, const ShardRequest& request,
            Reply<ShardResponse> reply) override {
    sent.push_back(
        {ps, std::get<proto::RestoreRequest>(request), std::move(reply)});
  }
  std::vector<Sent> sent;
};

// Broadcasts Restore, which may be parked and then has to be sent again.
class BroadcastTest : public ::testing::Test {
 protected:
  void Start() {
    const Outbox::Event event(&outbox_);
    proto::RestoreRequest& request = *broadcast_.NewRequest();
    request.mutable_checkpoint()->set_step(7);
    request.set_wait_ms(1000);
    broadcast_.Start();
  }
  void Tick(absl::Duration after) {
    clock_.Advance(after);
    const Outbox::Event event(&outbox_);
    broadcast_.SendDue();
  }
  // The ps that messages were sent to since the last call.
  std::vector<uint32_t> Sent() {
    std::vector<uint32_t> to;
    for (; seen_ < shards_.sent.size(); ++seen_) {
      to.push_back(shards_.sent[seen_].ps);
    }
    return to;
  }
  // Answers the message of that number.
  void Answer(size_t message, absl::StatusOr<ShardResponse> response) {
    shards_.sent[message].reply(std::move(response));
  }
  void Acknowledge(size_t message) {
    Answer(message, ShardResponse(proto::RestoreResponse()));
  }

  FakeClock clock_;
  SilentShards shards_;
  Outbox outbox_;
  const uint64_t first_life_ = 100;
  const ShardSpeech speech_ = {
      2,       &shards_,     &outbox_,
      &clock_, kResendAfter, [this](uint32_t ps) { return first_life_ + ps; }};
  size_t seen_ = 0;
  int done_ = 0;
  std::vector<std::string> refused_;
  Broadcast<proto::RestoreRequest> broadcast_{
      &speech_,
      {[this](uint32_t ps, const auto& response) {
         if (!response.ok()) {
           refused_.emplace_back(response.status().message());
           return Heard::kBroken;
         }
         return response->pending() ? Heard::kNotYet : Heard::kDone;
       },
       [this] { ++done_; }}};
};

TEST_F(BroadcastTest, IsDoneWhenAllHaveAcknowledged) {
  Start();
  EXPECT_THAT(Sent(), ElementsAre(0, 1));
  EXPECT_EQ(shards_.sent[1].request.sender().receiver_nonce(), 101u);
  EXPECT_EQ(shards_.sent[1].request.checkpoint().step(), 7u);
  Acknowledge(1);
  EXPECT_TRUE(broadcast_.done(1));
  EXPECT_EQ(broadcast_.WaitingFor(), "the state of step 7 at /job:ps/task:0");
  Acknowledge(0);
  EXPECT_EQ(done_, 1);
  EXPECT_FALSE(broadcast_.running());
}

TEST_F(BroadcastTest, SilenceAndPassingTroubleHaveAShardAskedAgain) {
  Start();
  Sent();
  Answer(0, absl::UnavailableError("connection refused"));
  EXPECT_EQ(broadcast_.Silent(),
            (std::vector<std::string>{"/job:ps/task:0 (connection refused)",
                                      "/job:ps/task:1"}));
  Tick(broadcast_.kRetryAfter);
  EXPECT_THAT(Sent(), ElementsAre(0));
  // The time for which the call may be parked does not count as silence.
  Tick(kResendAfter);
  EXPECT_THAT(Sent(), IsEmpty());
  Tick(absl::Seconds(1));
  EXPECT_THAT(Sent(), ElementsAre(0, 1));
  for (const size_t twice : {0, 2, 1, 3}) Acknowledge(twice);
  EXPECT_EQ(done_, 1);
}

TEST_F(BroadcastTest, WhoIsNotDoneIsAskedWithTheNextTick) {
  Start();
  Sent();
  proto::RestoreResponse pending;
  pending.set_pending(true);
  Answer(0, ShardResponse(pending));
  EXPECT_THAT(Sent(), IsEmpty());
  Tick(absl::ZeroDuration());
  EXPECT_THAT(Sent(), ElementsAre(0));
}

TEST_F(BroadcastTest, TheOwnerDecidesOnOtherErrors) {
  Start();
  Answer(1, absl::DataLossError("a bad file"));
  EXPECT_THAT(refused_, ElementsAre("a bad file"));
  Acknowledge(0);
  EXPECT_EQ(done_, 0);
}

TEST_F(BroadcastTest, AnswersToAnEarlierOneMeanNothing) {
  Start();
  broadcast_.Stop();
  Start();
  Acknowledge(0);
  Acknowledge(1);
  EXPECT_EQ(done_, 0);
  Acknowledge(2);
  Acknowledge(3);
  EXPECT_EQ(done_, 1);
}

// A request that is still in flight, or resent, is not overwritten by the next.
TEST_F(BroadcastTest, AMessageOnItsWayKeepsItsRequest) {
  Broadcast<proto::RestoreRequest> plain(
      &speech_, {[this](uint32_t, const auto&) { return Heard::kDone; },
                 [this] { ++done_; }});
  {
    const Outbox::Event event(&outbox_);
    plain.NewRequest()->set_wait_ms(1);
    plain.Start();
    plain.NewRequest()->set_wait_ms(2);
    plain.Start();
  }
  std::vector<uint64_t> waits;
  for (const auto& sent : shards_.sent) waits.push_back(sent.request.wait_ms());
  EXPECT_THAT(waits, ElementsAre(1, 1, 2, 2));
}

}  // namespace
}  // namespace holdfast
