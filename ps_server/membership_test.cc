// SPDX-License-Identifier: Apache-2.0
#include "ps_server/membership.h"

#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/testing/fake_ps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kShort = absl::Milliseconds(300);

// Records how a Membership ends.
class Member {
 public:
  explicit Member(const Membership::Options& options)
      : membership_(options, [this](const Membership::End& end) {
          end_ = end;
          ended_.Notify();
        }) {}

  absl::Status AwaitEnd() {
    if (!ended_.WaitForNotificationWithTimeout(kPatience)) {
      return absl::DeadlineExceededError("no end");
    }
    return end_.status;
  }
  // Valid once the membership has ended.
  const std::optional<proto::JobState>& verdict() const { return end_.verdict; }
  bool ended() const { return ended_.HasBeenNotified(); }
  Membership& operator*() { return membership_; }

 private:
  Membership::End end_;
  absl::Notification ended_;
  Membership membership_;
};

class MembershipTest : public testing::Test {
 protected:
  MembershipTest() {
    coordinator_.do_register.Do([](int, const auto&, auto* response) {
      response->set_incarnation(1);
      response->set_generation(1);
      response->set_lease_ms(60000);
      return absl::OkStatus();
    });
    coordinator_.renew.Do([this](int, const auto& request, auto* response) {
      return coordinator_.TellNews(request, response);
    });
    Tell(proto::TRAINING);
    options_.session.task = {kPsJob, 1};
    options_.session.queue = &queue_;
    options_.session.coordinator = coordinator_.address();
    options_.session.address = "127.0.0.1:1";
    options_.session.nonce = 77;
    options_.session.memory_limit_bytes = int64_t{5} << 30;
    options_.start_timeout = kPatience;
    options_.recovery_timeout = kPatience;
    options_.silence_after_done = kShort;
  }
  ~MembershipTest() override { coordinator_.Stop(); }

  void Tell(proto::JobPhase phase, const std::string& reason = "") {
    proto::RenewLeaseResponse news;
    news.set_generation(1);
    news.mutable_state()->set_phase(phase);
    news.mutable_state()->set_reason(reason);
    coordinator_.Tell(news);
  }

  CallQueue queue_;
  const std::unique_ptr<CallThreads> poller_ =
      *CallThreads::Start(&queue_, 1, "poller");
  FakePs coordinator_;
  Membership::Options options_;
};

TEST_F(MembershipTest, ACoordinatorThatDoesNotAppear) {
  coordinator_.Stop();
  options_.start_timeout = absl::Milliseconds(100);
  Member member(options_);
  const absl::Status status = member.AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("/job:ps/task:0"), HasSubstr(coordinator_.address())));
}

TEST_F(MembershipTest, ARefusal) {
  coordinator_.do_register.Do([](int, const auto&, auto*) {
    return absl::FailedPreconditionError("another cluster");
  });
  Member member(options_);
  const absl::Status status = member.AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another cluster"));
}

TEST_F(MembershipTest, TellsWhoItIsAndWhatItMayTake) {
  Member member(options_);
  coordinator_.renew.AwaitCalls(1);
  const proto::RegisterRequest request = coordinator_.do_register.requests()[0];
  EXPECT_EQ(request.address(), "127.0.0.1:1");
  EXPECT_EQ(request.nonce(), 77);
  EXPECT_EQ(request.memory_limit_bytes(), uint64_t{5} << 30);
}

TEST_F(MembershipTest, TheJobHasFailed) {
  Member member(options_);
  coordinator_.renew.AwaitCalls(1);
  Tell(proto::FAILED, "worker 3 is lost");
  EXPECT_EQ(member.AwaitEnd(), absl::AbortedError("worker 3 is lost"));
  ASSERT_TRUE(member.verdict().has_value());
  EXPECT_EQ(member.verdict()->phase(), proto::FAILED);
  EXPECT_EQ(member.verdict()->reason(), "worker 3 is lost");
}

TEST_F(MembershipTest, ACoordinatorThatFallsSilent) {
  options_.recovery_timeout = kShort;
  Member member(options_);
  coordinator_.renew.AwaitCalls(1);
  coordinator_.Stop();
  const absl::Status status = member.AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/task:0"));
  EXPECT_FALSE(member.verdict().has_value()) << "nobody ended the job";
}

// The job's own patience takes precedence over the ps's flag.
TEST_F(MembershipTest, ThePatienceOfTheJob) {
  options_.recovery_timeout = absl::Milliseconds(1);
  options_.session.job_patience = [] { return kShort; };
  Member member(options_);
  coordinator_.renew.AwaitCalls(1);
  coordinator_.Stop();
  EXPECT_THAT(std::string(member.AwaitEnd().message()),
              HasSubstr("no answer for 300ms"));
}

// Another process has its place, or the coordinator does not know its
// generation.
TEST_F(MembershipTest, ACoordinatorThatDoesNotTakeItBack) {
  coordinator_.renew.Do(
      [](int, const auto&, auto*) { return absl::AbortedError("fenced"); });
  Member member(options_);
  const absl::Status status = member.AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fenced"));
  EXPECT_FALSE(member.verdict().has_value());
}

// [L2] The ps keeps what it holds, and says in which generation it was.
TEST_F(MembershipTest, ACoordinatorThatIsRestarted) {
  Member member(options_);
  coordinator_.renew.AwaitCalls(1);
  const int port = coordinator_.port();
  coordinator_.Stop();
  FakePs restarted(port);
  restarted.renew.Do([](int, const auto&, auto*) {
    return absl::NotFoundError("no session");
  });
  restarted.do_register.AwaitCalls(1);
  const proto::RegisterRequest request = restarted.do_register.requests()[0];
  EXPECT_EQ(request.nonce(), 77);
  EXPECT_EQ(request.sender().generation(), 1);
  EXPECT_FALSE(member.ended());
  (*member).Leave("", SteadyNow() + kPatience);
}

// The shard would have been told to end, but the message was lost.
TEST_F(MembershipTest, ACoordinatorThatGoesOnceTheJobIsDone) {
  Tell(proto::DONE);
  Member member(options_);
  coordinator_.renew.AwaitCalls(2);
  coordinator_.Stop();
  EXPECT_EQ(member.AwaitEnd(), absl::OkStatus());
  ASSERT_TRUE(member.verdict().has_value());
  EXPECT_EQ(member.verdict()->phase(), proto::DONE);
}

TEST_F(MembershipTest, Leaves) {
  Member member(options_);
  coordinator_.renew.AwaitCalls(1);
  coordinator_.leave.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::FAILED);
    return absl::OkStatus();
  });
  const auto verdict = (*member).Leave("told to stop", SteadyNow() + kPatience);
  ASSERT_THAT(coordinator_.leave.requests(), SizeIs(1));
  EXPECT_EQ(coordinator_.leave.requests()[0].error(), "told to stop");
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->phase(), proto::FAILED);
  EXPECT_FALSE(member.ended());
}

TEST_F(MembershipTest, StepsDown) {
  Member member(options_);
  coordinator_.renew.AwaitCalls(1);
  (*member).Leave("", SteadyNow() + kPatience);
  ASSERT_THAT(coordinator_.leave.requests(), SizeIs(1));
  EXPECT_EQ(coordinator_.leave.requests()[0].error(), "");
}

TEST_F(MembershipTest, LeavesWhatItHasNotFound) {
  coordinator_.Stop();
  Member member(options_);
  (*member).Leave("told to stop", SteadyNow() + kPatience);
  EXPECT_FALSE(member.ended());
}

// [L1] Its place is held by an earlier life.
TEST_F(MembershipTest, LeavesWhileItsRegistrationIsParked) {
  coordinator_.do_register.Do(
      [this](int, const auto&, auto*) { return coordinator_.Mute(); });
  Member member(options_);
  coordinator_.do_register.AwaitCalls(1);
  (*member).Leave("", SteadyNow() + kPatience);
  EXPECT_FALSE(member.ended());
  EXPECT_EQ(coordinator_.leave.num_calls(), 0);
}

}  // namespace
}  // namespace holdfast
