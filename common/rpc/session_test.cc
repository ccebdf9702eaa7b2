// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/session.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/rpc/backoff.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/testing/fake_ps.h"
#include "common/trace/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Short, but long enough not to expire on a busy machine.
constexpr absl::Duration kLease = absl::Milliseconds(600);
constexpr absl::Duration kShortLease = absl::Milliseconds(200);

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    GrantLease(kLease);
    coordinator_.renew.Do([this](int, const auto& request, auto* response) {
      return coordinator_.TellNews(request, response);
    });
    Tell(3, proto::TRAINING);
  }
  ~SessionTest() override { coordinator_.Stop(); }

  void Tell(uint64_t generation, proto::JobPhase phase) {
    proto::RenewLeaseResponse news;
    news.set_generation(generation);
    news.mutable_state()->set_phase(phase);
    coordinator_.Tell(news);
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

  Session::Options Options() {
    Session::Options options;
    options.task = {kWorkerJob, 1};
    options.queue = &queue_;
    options.coordinator = coordinator_.address();
    options.job_digest = "job";
    options.data_digest = "data";
    options.num_ps = 2;
    options.num_workers = 3;
    options.deadline = SteadyNow() + absl::Seconds(20);
    return options;
  }

  std::string CoordinatorName() const {
    return absl::StrCat("/job:ps/task:0 at ", coordinator_.address());
  }

  CallQueue queue_;
  const std::unique_ptr<CallThreads> poller_ =
      *CallThreads::Start(&queue_, 1, "poller");
  FakePs coordinator_;
};

// The news that on_change received, in order.
class Told {
 public:
  void Watch(Session::Options* options) {
    options->on_change = [this](const Session::News& news) {
      absl::MutexLock lock(&mutex_);
      news_.push_back(news);
    };
  }
  // Waits until there is news for which `is_it` holds, and returns the first.
  Session::News Await(const std::function<bool(const Session::News&)>& is_it) {
    absl::MutexLock lock(&mutex_);
    Session::News found;
    const auto here = [&] {
      for (const Session::News& news : news_) {
        if (!is_it(news)) continue;
        found = news;
        return true;
      }
      return false;
    };
    mutex_.Await(absl::Condition(&here));
    return found;
  }
  Session::News AwaitPhase(proto::JobPhase phase) {
    return Await([=](const auto& news) { return news.state.phase() == phase; });
  }
  Session::News AwaitEnd() {
    return Await([](const auto& news) { return !news.status.ok(); });
  }
  Session::News AwaitGeneration(uint64_t generation) {
    return Await([=](const auto& news) {
      return news.sender.generation() == generation;
    });
  }
  std::vector<Session::News> all() {
    absl::MutexLock lock(&mutex_);
    return news_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<Session::News> news_;
};

TEST_F(SessionTest, RegistersAndRenews) {
  Session::Options options = Options();
  options.address = "somewhere:1";
  options.report = [asked = 0]() mutable {
    TaskReport told;
    if (asked++ == 0) return told;
    told.input_wait.emplace().set_recent(0.25);
    told.worker.emplace().set_steps(3);
    told.ps.emplace().set_updates(4);
    return told;
  };
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
  const auto first = coordinator_.renew.requests()[0];
  EXPECT_FALSE(first.has_input_wait() || first.has_worker() || first.has_ps());
  const auto later = coordinator_.renew.requests()[3];
  EXPECT_EQ(later.input_wait().recent(), 0.25);
  EXPECT_EQ(later.worker().steps(), 3);
  EXPECT_EQ(later.ps().updates(), 4);

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
    response->set_incarnation(7);
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

// [L1] While an earlier life's lease runs. After an answer that took long, the
// next question comes at once, which is no busy loop.
TEST_F(SessionTest, AsksAgainUntilItIsAdmitted) {
  coordinator_.do_register.Do(
      [](int call, const auto& request, auto* response) {
        if (call < 3) {
          absl::SleepFor(absl::Milliseconds(request.wait_ms()));
          response->set_waiting_for("the end of a lease");
          return absl::OkStatus();
        }
        response->set_incarnation(7);
        response->set_lease_ms(10000);
        return absl::OkStatus();
      });
  Session::Options options = Options();
  options.attempt_timeout = absl::Milliseconds(100);
  std::string waits_for;
  options.on_waiting = [&](const std::string& what) { waits_for = what; };
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->sender().incarnation(), 7);
  const auto requests = coordinator_.do_register.requests();
  ASSERT_THAT(requests, SizeIs(4));
  for (const proto::RegisterRequest& request : requests) {
    EXPECT_EQ(request.nonce(), requests[0].nonce());
    EXPECT_GT(request.wait_ms(), 0);
    EXPECT_LE(request.wait_ms(), 50);
  }
}

// [L1] So that a place is refused only after the task has waited for it.
TEST_F(SessionTest, TellsForHowLongItHasWaited) {
  coordinator_.do_register.Do([](int, const auto& request, auto* response) {
    if (request.waited_ms() >= 20) {
      return absl::AlreadyExistsError("host:1 is alive");
    }
    absl::SleepFor(absl::Milliseconds(10));
    response->set_waiting_for("the end of a lease");
    return absl::OkStatus();
  });
  const absl::Status status = Session::Open(Options()).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  const auto requests = coordinator_.do_register.requests();
  ASSERT_GE(requests.size(), 2u);
  EXPECT_TRUE(requests[0].has_waited_ms());
  EXPECT_EQ(requests[0].waited_ms(), 0u);
  EXPECT_GE(requests[1].waited_ms(), 10u);
}

TEST_F(SessionTest, ARefusalNamesTheFirstDifference) {
  coordinator_.do_register.Do([](int, const auto&, auto*) {
    return absl::FailedPreconditionError("another job file");
  });
  Session::Options options = Options();
  options.declaration.emplace().set_seed(5);
  coordinator_.declare.Do([](int, const auto& request, auto*) {
    EXPECT_EQ(request.sender().task().job(), "worker");
    EXPECT_EQ(request.sender().incarnation(), 0u);
    EXPECT_EQ(request.declaration().seed(), 5u);
    return absl::AlreadyExistsError("seed: 4 -> 5");
  });
  EXPECT_EQ(Session::Open(options).status(),
            absl::FailedPreconditionError(absl::StrCat(
                CoordinatorName(), ": another job file. seed: 4 -> 5")));
  // The declaration is only a part of the job file.
  coordinator_.declare.Do(
      [](int, const auto&, auto*) { return absl::OkStatus(); });
  EXPECT_THAT(std::string(Session::Open(options).status().message()),
              HasSubstr("The declarations are the same"));
  // A coordinator that does not compare declarations.
  coordinator_.declare.Do([](int, const auto&, auto*) {
    return absl::NotFoundError("register first");
  });
  EXPECT_EQ(Session::Open(options).status(),
            absl::FailedPreconditionError(
                absl::StrCat(CoordinatorName(), ": another job file")));
}

TEST_F(SessionTest, SaysWhatItWaitedForToBeAdmitted) {
  coordinator_.do_register.Do([](int, const auto&, auto* response) {
    response->set_waiting_for("the end of a lease");
    return absl::OkStatus();
  });
  Session::Options options = Options();
  options.deadline = SteadyNow() + absl::Milliseconds(150);
  const absl::Status status = Session::Open(options).status();
  EXPECT_EQ(status,
            absl::UnavailableError(absl::StrCat(
                CoordinatorName(), ": it is waiting for the end of a lease")));
  EXPECT_LE(coordinator_.do_register.num_calls(), 10) << "asks in a busy loop";
}

TEST_F(SessionTest, ARegistrationWithoutAnAnswerIsRepeated) {
  coordinator_.do_register.Do([this](int call, const auto&, auto* response) {
    if (call < 2) return coordinator_.Mute();
    response->set_incarnation(7);
    response->set_lease_ms(10000);
    return absl::OkStatus();
  });
  Session::Options options = Options();
  options.attempt_timeout = absl::Milliseconds(50);
  ASSERT_TRUE(Session::Open(options).ok());
  const auto requests = coordinator_.do_register.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_EQ(requests[2].nonce(), requests[0].nonce());
}

TEST_F(SessionTest, OpenGivesUpWhenItIsToldTo) {
  coordinator_.do_register.Do(
      [this](int, const auto&, auto*) { return coordinator_.Mute(); });
  Session::Options options = Options();
  options.attempt_timeout = absl::Milliseconds(50);
  options.give_up = [this] { return coordinator_.do_register.num_calls() > 1; };
  EXPECT_TRUE(absl::IsCancelled(Session::Open(options).status()));
  EXPECT_EQ(coordinator_.do_register.num_calls(), 2);
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
  options.deadline = SteadyNow() + absl::Milliseconds(150);
  const absl::Status status = Session::Open(options).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(CoordinatorName()));
}

// The wait is reported after two seconds, and again ten seconds later.
TEST_F(SessionTest, SaysOnceWhyTheCoordinatorCannotBeReached) {
  Session::Options options = Options();
  coordinator_.Stop();
  options.deadline = SteadyNow() + absl::Milliseconds(3300);
  std::vector<std::string> told;
  options.on_waiting = [&](const std::string& what) { told.push_back(what); };
  const std::string what = absl::StrCat(
      CoordinatorName(), ": connection refused: nothing listens there");
  EXPECT_EQ(Session::Open(options).status(), absl::UnavailableError(what));
  EXPECT_THAT(told, ElementsAre(what));
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

// [L2] News arrives without waiting for the next renewal to be due.
TEST_F(SessionTest, WhatBecomesOfTheJobIsToldAtOnce) {
  GrantLease(absl::Hours(1));
  Told told;
  Session::Options options = Options();
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(told.AwaitGeneration(3).sender.incarnation(), 7);
  told.AwaitPhase(proto::TRAINING);
  Tell(4, proto::STARTING);
  const Session::News begun = told.AwaitGeneration(4);
  EXPECT_EQ(begun.state.phase(), proto::STARTING);
  EXPECT_EQ(begun.sender.incarnation(), 7);
  Tell(4, proto::TRAINING);
  coordinator_.renew.AwaitCalls(4);
  EXPECT_EQ((*session)->sender().generation(), 4);

  const auto requests = coordinator_.renew.requests();
  EXPECT_EQ(requests[0].wait_ms(), 30000);
  EXPECT_EQ(requests[0].known_phase(), proto::STARTING);
  EXPECT_EQ(requests[1].known_phase(), proto::TRAINING);
  EXPECT_EQ(requests[1].sender().generation(), 3);
  EXPECT_EQ(requests[2].known_phase(), proto::STARTING);
  EXPECT_EQ(requests[2].sender().generation(), 4);
  EXPECT_EQ(requests[3].known_phase(), proto::TRAINING);
}

TEST_F(SessionTest, IsParkedForAThirdOfTheLease) {
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  coordinator_.renew.AwaitCalls(3);
  EXPECT_EQ(coordinator_.renew.requests()[2].wait_ms(), 200);
}

// A coordinator that cannot park calls is not asked in a busy loop.
TEST_F(SessionTest, AnAnswerWithoutNewsIsNoReasonToAskAtOnce) {
  GrantLease(absl::Hours(1));
  absl::Mutex mutex;
  std::vector<absl::Time> asked;
  coordinator_.renew.Do([&](int, const auto&, auto* response) {
    absl::MutexLock lock(&mutex);
    asked.push_back(SteadyNow());
    return Answer(proto::TRAINING, response);
  });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  coordinator_.renew.AwaitCalls(6);
  session->reset();
  coordinator_.Stop();
  // After the news: at least half of 20, 40, 80 and 160 ms.
  EXPECT_GE(asked[5] - asked[1], absl::Milliseconds(150));
}

TEST_F(SessionTest, TellsWhatIsDurable) {
  coordinator_.renew.Do([](int call, const auto&, auto* response) {
    response->set_durable_step(call < 2 ? 0 : 500);
    return Answer(proto::TRAINING, response);
  });
  Told told;
  Session::Options options = Options();
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  told.Await([](const auto& news) { return news.durable_step == 500; });
  EXPECT_EQ((*session)->news().durable_step, 500);
}

// [L2] The coordinator was restarted. It knows the generation, and begins
// another.
TEST_F(SessionTest, RegistersAgainWithACoordinatorThatDoesNotKnowIt) {
  coordinator_.do_register.Do([](int call, const auto&, auto* response) {
    response->set_incarnation(call == 0 ? 7 : 1000000001);
    response->set_generation(call == 0 ? 3 : 4);
    response->set_lease_ms(60000);
    return absl::OkStatus();
  });
  coordinator_.renew.Do([this](int, const auto& request, auto* response) {
    if (request.sender().incarnation() == 7) {
      return absl::NotFoundError("no session");
    }
    return coordinator_.TellNews(request, response);
  });
  Told told;
  Session::Options options = Options();
  options.nonce = 99;
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  const Session::News news = told.AwaitGeneration(4);
  EXPECT_EQ(news.sender.incarnation(), 1000000001);
  EXPECT_TRUE(news.status.ok());
  const auto requests = coordinator_.do_register.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[0].nonce(), 99);
  EXPECT_EQ(requests[0].sender().generation(), 0);
  EXPECT_EQ(requests[1].nonce(), 99);
  EXPECT_EQ(requests[1].sender().generation(), 3);
  EXPECT_EQ(requests[1].sender().incarnation(), 0);
  EXPECT_EQ(requests[1].job_digest(), "job");
  coordinator_.renew.AwaitCalls(2);
  EXPECT_EQ(coordinator_.renew.requests()[1].sender().incarnation(),
            1000000001);
}

// [L1] A restarted coordinator that cannot admit any task yet is not silent.
TEST_F(SessionTest, AsksAgainToBeTakenBack) {
  coordinator_.do_register.Do(
      [](int call, const auto& request, auto* response) {
        if (call > 0 && call < 8) {
          absl::SleepFor(absl::Milliseconds(request.wait_ms()));
          response->set_waiting_for("the journal");
          return absl::OkStatus();
        }
        response->set_incarnation(call == 0 ? 7 : 8);
        response->set_generation(call == 0 ? 3 : 4);
        response->set_lease_ms(150);
        return absl::OkStatus();
      });
  coordinator_.renew.Do([this](int, const auto& request, auto* response) {
    if (request.sender().incarnation() == 7) {
      return absl::NotFoundError("no session");
    }
    return coordinator_.TellNews(request, response);
  });
  Told told;
  Session::Options options = Options();
  options.patience = absl::Milliseconds(200);
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  const Session::News news = told.Await([](const auto& news) {
    return news.sender.incarnation() == 8 || !news.status.ok();
  });
  EXPECT_TRUE(news.status.ok()) << news.status;
}

TEST_F(SessionTest, ACoordinatorThatDoesNotTakeItBackEndsIt) {
  for (const absl::Status& refusal :
       {absl::FailedPreconditionError("knows nothing of generation 3"),
        absl::AlreadyExistsError("host:1 is here already"),
        absl::AbortedError("the job has failed")}) {
    coordinator_.do_register.Do(
        [refusal](int, const auto& request, auto* response) {
          if (request.sender().generation() > 0) return refusal;
          response->set_incarnation(7);
          response->set_generation(3);
          response->set_lease_ms(60000);
          return absl::OkStatus();
        });
    coordinator_.renew.Do([](int, const auto&, auto*) {
      return absl::NotFoundError("no session");
    });
    Told told;
    Session::Options options = Options();
    told.Watch(&options);
    auto session = Session::Open(options);
    ASSERT_TRUE(session.ok());
    const Session::News news = told.AwaitEnd();
    EXPECT_TRUE(absl::IsAborted(news.status)) << news.status;
    EXPECT_THAT(
        std::string(news.status.message()),
        AllOf(HasSubstr(CoordinatorName()), HasSubstr(refusal.message())));
  }
}

TEST_F(SessionTest, AMuteCoordinatorEndsTheSession) {
  coordinator_.renew.Do(
      [this](int, const auto&, auto*) { return coordinator_.Mute(); });
  Told told;
  Session::Options options = Options();
  options.patience = absl::Milliseconds(1100);
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  const Session::News end = told.AwaitEnd();
  EXPECT_THAT(
      std::string(end.status.message()),
      HasSubstr(absl::StrCat(CoordinatorName(), ": no answer for 1.1s")));
  EXPECT_TRUE(absl::IsUnavailable(end.status)) << end.status;
  // The job may go on without the task.
  EXPECT_EQ((*session)->state().phase(), proto::STARTING);
  EXPECT_EQ((*session)->status(), end.status);
  // Each attempt left time for another within the lease of 600 ms.
  EXPECT_GE(coordinator_.renew.num_calls(), 3);
}

TEST_F(SessionTest, ADeadCoordinatorEndsTheSession) {
  GrantLease(kShortLease);
  Told told;
  Session::Options options = Options();
  options.patience = absl::Milliseconds(400);
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  coordinator_.renew.AwaitCalls(1);
  coordinator_.Stop();
  const Session::News end = told.AwaitEnd();
  EXPECT_THAT(
      std::string(end.status.message()),
      HasSubstr("no answer for 400ms (connection refused: nothing listens"));
  EXPECT_TRUE(absl::IsUnavailable(end.status)) << end.status;
}

// Longer than the lease, because the coordinator may be restarted meanwhile.
TEST_F(SessionTest, WaitsForACoordinatorThatComesBack) {
  GrantLease(kShortLease);
  Told told;
  Session::Options options = Options();
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  told.AwaitPhase(proto::TRAINING);
  const int port = coordinator_.port();
  coordinator_.Stop();
  FakePs back(port);
  back.renew.Do([&](int, const auto& request, auto* response) {
    if (request.sender().incarnation() == 7) {
      return absl::NotFoundError("no session");
    }
    return back.TellNews(request, response);
  });
  back.do_register.Do([](int, const auto&, auto* response) {
    response->set_incarnation(8);
    response->set_generation(4);
    response->set_lease_ms(60000);
    return absl::OkStatus();
  });
  EXPECT_EQ(told.AwaitGeneration(4).sender.incarnation(), 8);
  session->reset();
}

TEST_F(SessionTest, AFailedJobEndsTheSession) {
  coordinator_.renew.Do([](int call, const auto&, auto* response) {
    response->mutable_state()->set_reason("/job:worker/task:0 was lost");
    return Answer(call == 0 ? proto::TRAINING : proto::FAILED, response);
  });
  Told told;
  Session::Options options = Options();
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  const Session::News end = told.AwaitPhase(proto::FAILED);
  EXPECT_EQ(end.state.reason(), "/job:worker/task:0 was lost");
  EXPECT_EQ(end.status, absl::AbortedError("/job:worker/task:0 was lost"));
}

TEST_F(SessionTest, AShutOutTaskIsTold) {
  coordinator_.renew.Do([](int, const auto&, auto*) {
    return absl::AbortedError("the lease ran out");
  });
  Told told;
  Session::Options options = Options();
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  const Session::News end = told.AwaitEnd();
  EXPECT_EQ(end.status, absl::AbortedError(absl::StrCat(
                            CoordinatorName(),
                            " has ended this session: the lease ran out")));
  // The job goes on without the task.
  EXPECT_EQ(end.state.phase(), proto::STARTING);
}

// The lease is kept when the job is DONE, so that there is time to evaluate;
// and the coordinator may exit then.
TEST_F(SessionTest, ADoneJobIsToldOnceAndRenewedUntilTheCoordinatorGoes) {
  Tell(3, proto::DONE);
  Told told;
  Session::Options options = Options();
  options.patience = absl::Milliseconds(600);
  told.Watch(&options);
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE(told.AwaitPhase(proto::DONE).status.ok());
  coordinator_.renew.AwaitCalls(3);
  EXPECT_THAT(told.all(), SizeIs(2));  // the registration, and DONE
  coordinator_.Stop();
  EXPECT_FALSE(
      (*session)->Close("", SteadyNow() + absl::Milliseconds(300)).ok());
  EXPECT_EQ((*session)->state().phase(), proto::DONE);
  EXPECT_TRUE((*session)->status().ok());
}

TEST_F(SessionTest, ClosesOnce) {
  coordinator_.leave.Do([](int call, const auto&, auto*) {
    return call == 0 ? absl::UnavailableError("lost") : absl::OkStatus();
  });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  const absl::Time deadline = SteadyNow() + absl::Seconds(20);
  EXPECT_TRUE((*session)->Close("out of disk", deadline).ok());
  EXPECT_TRUE((*session)->Close("again", deadline).ok());
  const auto requests = coordinator_.leave.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[1].error(), "out of disk");
  EXPECT_EQ(requests[1].sender().incarnation(), 7);
}

// A message with text that is not UTF-8 would not arrive.
TEST_F(SessionTest, SaysWhyItLeavesWhateverTheTextIs) {
  Session::Options options = Options();
  options.data_digest = "\xff";
  auto session = Session::Open(std::move(options));
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_THAT(coordinator_.do_register.requests(), SizeIs(1));
  EXPECT_EQ(coordinator_.do_register.requests()[0].data_digest(), "\\377");
  EXPECT_TRUE((*session)
                  ->Close("caf\xe9.csv: damaged\n\033[m",
                          SteadyNow() + absl::Seconds(20))
                  .ok());
  ASSERT_THAT(coordinator_.leave.requests(), SizeIs(1));
  EXPECT_EQ(coordinator_.leave.requests()[0].error(), "caf?.csv: damaged\n?[m");
}

// The coordinator received an earlier attempt, whose answer was lost.
TEST_F(SessionTest, NotKnownAnyMoreIsLeftWhenItWasSaidBefore) {
  coordinator_.leave.Do([](int call, const auto&, auto*) {
    return call == 0 ? absl::UnavailableError("lost")
                     : absl::NotFoundError("no session");
  });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE((*session)->Close("", SteadyNow() + absl::Seconds(20)).ok());
}

TEST_F(SessionTest, CloseEndsAtItsDeadline) {
  coordinator_.leave.Do(
      [this](int, const auto&, auto*) { return coordinator_.Mute(); });
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok());
  const absl::Status status =
      (*session)->Close("", SteadyNow() + absl::Milliseconds(100));
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

TEST_F(SessionTest, RecordsForATraceAndSendsBeforeItLeaves) {
  Tracer tracer({.on_demand = true});
  const Tracer::Track track =
      tracer.AddTrack("training", Tracer::TrackKind::kNested);
  Session::Options options = Options();
  options.tracer = &tracer;
  auto session = Session::Open(std::move(options));
  ASSERT_TRUE(session.ok()) << session.status();
  coordinator_.renew.AwaitCalls(1);
  EXPECT_TRUE(coordinator_.renew.requests()[0].has_recording());

  proto::RenewLeaseResponse news;
  news.set_generation(3);
  news.mutable_state()->set_phase(proto::TRAINING);
  news.mutable_trace()->set_trace(9);
  coordinator_.Tell(news);
  // Asks for the time.
  coordinator_.report_trace.AwaitCalls(10);
  EXPECT_TRUE(tracer.recording());
  const absl::Time now = SteadyNow();
  tracer.Add(track, {TraceKind::kWait, "input", now, now, {}, ""});
  news.mutable_trace()->set_over(true);
  // Whatever the clocks show.
  news.mutable_trace()->set_begin_ns(-4'000'000'000'000'000'000);
  news.mutable_trace()->set_end_ns(4'000'000'000'000'000'000);
  coordinator_.Tell(news);
  coordinator_.report_trace.AwaitCalls(20);
  EXPECT_TRUE((*session)->Close("", SteadyNow() + absl::Seconds(20)).ok());
  const auto reports = coordinator_.report_trace.requests();
  ASSERT_THAT(reports, SizeIs(21));
  EXPECT_EQ(reports[20].trace(), 9u);
  EXPECT_EQ(reports[20].sender().incarnation(), 7u);
  EXPECT_EQ(reports[20].part().spans(0).name(), "input");
}

TEST_F(SessionTest, WithoutATracerItHasNoPartInTraces) {
  auto session = Session::Open(Options());
  ASSERT_TRUE(session.ok()) << session.status();
  coordinator_.renew.AwaitCalls(1);
  EXPECT_FALSE(coordinator_.renew.requests()[0].has_recording());
}

TEST(BackoffTest, DoublesUpToItsBoundWithAHalfLeftToChance) {
  absl::InsecureBitGen random;
  for (int round = 0; round < 100; ++round) {
    Backoff backoff(absl::Milliseconds(20), absl::Milliseconds(100));
    for (const int bound : {20, 40, 80, 100, 100}) {
      const absl::Duration pause = backoff.Next(random);
      EXPECT_GE(pause, absl::Milliseconds(bound) / 2);
      EXPECT_LE(pause, absl::Milliseconds(bound));
    }
    backoff.Reset();
    EXPECT_LE(backoff.Next(random), absl::Milliseconds(20));
  }
}

}  // namespace
}  // namespace holdfast
