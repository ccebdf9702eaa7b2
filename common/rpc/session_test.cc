#include "common/rpc/session.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/backoff.h"
#include "common/rpc/fake_ps.h"
#include "common/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Long enough that a busy machine does not let it run out, and short.
constexpr absl::Duration kLease = absl::Milliseconds(600);
constexpr absl::Duration kShortLease = absl::Milliseconds(200);

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    GrantLease(kLease);
    coordinator_.renew.Do(
        [](int, const auto&, proto::RenewLeaseResponse* response) {
          return Answer(proto::TRAINING, response);
        });
  }

  void GrantLease(absl::Duration lease) {
    coordinator_.do_register.Do([lease](int, const auto&, auto* response) {
      response->set_incarnation(7);
      response->set_generation(3);
      response->set_lease_ms(absl::ToInt64Milliseconds(lease));
      return absl::OkStatus();
    });
  }

  static absl::Status Answer(proto::JobPhase phase,
                             proto::RenewLeaseResponse* response) {
    response->set_generation(3);
    response->mutable_state()->set_phase(phase);
    return absl::OkStatus();
  }

  Session::Options Options() const {
    Session::Options options;
    options.task = {kWorkerJob, 1};
    options.coordinator = coordinator_.address();
    options.job_digest = "job";
    options.data_digest = "data";
    options.num_ps = 2;
    options.num_workers = 3;
    options.deadline = absl::Now() + absl::Seconds(20);
    return options;
  }

  std::string CoordinatorName() const {
    return absl::StrCat("/job:ps/task:0 at ", coordinator_.address());
  }

  FakePs coordinator_;
};

// What on_change told, and when.
struct Change {
  absl::Notification told;
  proto::JobState state;
  absl::Status status;

  void Watch(Session::Options* options) {
    options->on_change = [this](const proto::JobState& state,
                                const absl::Status& status) {
      this->state = state;
      this->status = status;
      told.Notify();
    };
  }
};

TEST_F(SessionTest, RegistersAndRenews) {
  Session::Options options = Options();
  options.address = "somewhere:1";
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok()) << session.status();
  const proto::Sender sender = (*session)->sender();
  EXPECT_EQ(sender.task().job(), "worker");
  EXPECT_EQ(sender.task().index(), 1);
  EXPECT_EQ(sender.incarnation(), 7);
  EXPECT_EQ(sender.generation(), 3);
  coordinator_.renew.AwaitCalls(4);  // beyond a lease
  EXPECT_EQ((*session)->state().phase(), proto::TRAINING);
  EXPECT_TRUE((*session)->status().ok());
  EXPECT_EQ(coordinator_.renew.requests()[3].sender().incarnation(), 7);

  ASSERT_THAT(coordinator_.do_register.requests(), SizeIs(1));
  const proto::RegisterRequest request = coordinator_.do_register.requests()[0];
  EXPECT_EQ(request.sender().incarnation(), 0);
  EXPECT_EQ(request.protocol_version(), kProtocolVersion);
  EXPECT_EQ(request.address(), "somewhere:1");
  EXPECT_THAT(request.process(), HasSubstr(absl::StrCat(getpid())));
  EXPECT_EQ(request.job_digest(), "job");
  EXPECT_EQ(request.data_digest(), "data");
  EXPECT_EQ(request.num_ps(), 2);
  EXPECT_EQ(request.num_workers(), 3);
}

TEST_F(SessionTest, RepeatsWithTheSameNonce) {
  coordinator_.do_register.Do([](int call, const auto&, auto* response) {
    if (call == 0) return absl::UnavailableError("not yet");
    if (call == 1) return absl::DeadlineExceededError("lost");
    response->set_lease_ms(10000);
    return absl::OkStatus();
  });
  ASSERT_TRUE(Session::Open(Options()).ok());
  const auto requests = coordinator_.do_register.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_NE(requests[0].nonce(), 0);
  EXPECT_EQ(requests[1].nonce(), requests[0].nonce());
  EXPECT_EQ(requests[2].nonce(), requests[0].nonce());
}

TEST_F(SessionTest, AnotherSessionHasAnotherNonce) {
  ASSERT_TRUE(Session::Open(Options()).ok());
  ASSERT_TRUE(Session::Open(Options()).ok());
  const auto requests = coordinator_.do_register.requests();
  EXPECT_NE(requests[0].nonce(), requests[1].nonce());
}

TEST_F(SessionTest, TheCoordinatorsErrorsComeAtOnce) {
  int calls = 0;
  for (const absl::Status& error :
       {absl::AlreadyExistsError("host:1 is here already"),
        absl::FailedPreconditionError("other digest"),
        absl::InvalidArgumentError("no such task")}) {
    coordinator_.do_register.Do(
        [error](int, const auto&, auto*) { return error; });
    const absl::Status status = Session::Open(Options()).status();
    EXPECT_EQ(status,
              absl::Status(error.code(), absl::StrCat(CoordinatorName(), ": ",
                                                      error.message())));
    EXPECT_EQ(coordinator_.do_register.num_calls(), ++calls);
  }
}

TEST_F(SessionTest, GivesUpAtTheDeadlineAndNamesTheCoordinator) {
  Session::Options options = Options();
  coordinator_.Stop();
  options.deadline = absl::Now() + absl::Milliseconds(150);
  const absl::Status status = Session::Open(options).status();
  EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kUnavailable,
                                   absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()), HasSubstr(CoordinatorName()));
}

TEST_F(SessionTest, SurvivesLostRenewals) {
  coordinator_.renew.Do([](int call, const auto&, auto* response) {
    if (call < 2) return absl::UnavailableError("lost");
    return Answer(proto::TRAINING, response);
  });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  coordinator_.renew.AwaitCalls(4);
  EXPECT_TRUE((*session)->status().ok());
}

TEST_F(SessionTest, AMuteCoordinatorEndsTheSession) {
  GrantLease(kShortLease);
  coordinator_.renew.Do(
      [this](int, const auto&, auto*) { return coordinator_.Mute(); });
  Change change;
  Session::Options options = Options();
  change.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  change.told.WaitForNotification();
  EXPECT_EQ(change.state.phase(), proto::FAILED);
  EXPECT_THAT(
      change.state.reason(),
      HasSubstr(absl::StrCat(CoordinatorName(), ": no answer for 200ms")));
  EXPECT_TRUE(absl::IsUnavailable(change.status)) << change.status;
  EXPECT_EQ((*session)->state().phase(), proto::FAILED);
  EXPECT_EQ((*session)->status(), change.status);
}

TEST_F(SessionTest, ADeadCoordinatorEndsTheSession) {
  GrantLease(kShortLease);
  Change change;
  Session::Options options = Options();
  change.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  coordinator_.renew.AwaitCalls(1);
  coordinator_.Stop();
  change.told.WaitForNotification();
  EXPECT_THAT(change.state.reason(), HasSubstr("no answer for 200ms"));
  EXPECT_TRUE(absl::IsUnavailable(change.status)) << change.status;
}

TEST_F(SessionTest, AFailedJobEndsTheSession) {
  coordinator_.renew.Do([](int call, const auto&, auto* response) {
    response->mutable_state()->set_reason("/job:worker/task:0 was lost");
    return Answer(call == 0 ? proto::TRAINING : proto::FAILED, response);
  });
  Change change;
  Session::Options options = Options();
  change.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  change.told.WaitForNotification();
  EXPECT_EQ(change.state.phase(), proto::FAILED);
  EXPECT_EQ(change.state.reason(), "/job:worker/task:0 was lost");
  EXPECT_EQ(change.status, absl::AbortedError("/job:worker/task:0 was lost"));
}

TEST_F(SessionTest, ARefusedLeaseEndsTheSession) {
  coordinator_.renew.Do([](int, const auto&, auto*) {
    return absl::NotFoundError("the lease ran out");
  });
  Change change;
  Session::Options options = Options();
  change.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  change.told.WaitForNotification();
  EXPECT_TRUE(absl::IsAborted(change.status)) << change.status;
  EXPECT_THAT(change.state.reason(), HasSubstr("the lease ran out"));
}

// The lease of a job that is DONE is kept, so that there is time to evaluate;
// and nobody minds when the coordinator goes then.
TEST_F(SessionTest, ADoneJobIsToldOnceAndRenewedUntilTheCoordinatorGoes) {
  coordinator_.renew.Do([](int, const auto&, auto* response) {
    return Answer(proto::DONE, response);
  });
  Change change;
  Session::Options options = Options();
  change.Watch(&options);  // a second Notify would crash
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  change.told.WaitForNotification();
  EXPECT_EQ(change.state.phase(), proto::DONE);
  EXPECT_TRUE(change.status.ok());
  coordinator_.renew.AwaitCalls(2);
  coordinator_.Stop();
  EXPECT_FALSE(
      (*session)->Close("", absl::Now() + absl::Milliseconds(300)).ok());
  EXPECT_EQ((*session)->state().phase(), proto::DONE);
  EXPECT_TRUE((*session)->status().ok());
}

TEST_F(SessionTest, ClosesOnce) {
  coordinator_.leave.Do([](int call, const auto&, auto*) {
    return call == 0 ? absl::UnavailableError("lost") : absl::OkStatus();
  });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  EXPECT_TRUE((*session)->Close("out of disk", deadline).ok());
  EXPECT_TRUE((*session)->Close("again", deadline).ok());
  const auto requests = coordinator_.leave.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[1].error(), "out of disk");
  EXPECT_EQ(requests[1].sender().incarnation(), 7);
}

// The coordinator heard an earlier attempt, whose answer was lost.
TEST_F(SessionTest, NotKnownAnyMoreIsLeftWhenItWasSaidBefore) {
  coordinator_.leave.Do([](int call, const auto&, auto*) {
    return call == 0 ? absl::UnavailableError("lost")
                     : absl::NotFoundError("no session");
  });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE((*session)->Close("", absl::Now() + absl::Seconds(20)).ok());
}

TEST_F(SessionTest, CloseEndsAtItsDeadline) {
  coordinator_.leave.Do(
      [this](int, const auto&, auto*) { return coordinator_.Mute(); });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  const absl::Status status =
      (*session)->Close("", absl::Now() + absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(CoordinatorName()));
}

TEST_F(SessionTest, IsDestroyedWhileARenewalIsOut) {
  coordinator_.renew.Do(
      [this](int, const auto&, auto*) { return coordinator_.Mute(); });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  coordinator_.renew.AwaitCalls(1);
  session->reset();
}

TEST(BackoffTest, DoublesUpToItsBoundWithAHalfLeftToChance) {
  for (int round = 0; round < 100; ++round) {
    Backoff backoff(absl::Milliseconds(20), absl::Milliseconds(100));
    for (const int bound : {20, 40, 80, 100, 100}) {
      const absl::Duration pause = backoff.Next();
      EXPECT_GE(pause, absl::Milliseconds(bound) / 2);
      EXPECT_LE(pause, absl::Milliseconds(bound));
    }
    backoff.Reset();
    EXPECT_LE(backoff.Next(), absl::Milliseconds(20));
  }
}

}  // namespace
}  // namespace holdfast
