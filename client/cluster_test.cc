// SPDX-License-Identifier: Apache-2.0
#include "client/cluster.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/client_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using ConnectTest = ClientTest;
using ClusterTest = ClientTest;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST_F(ConnectTest, AWorkerRegisters) {
  auto cluster = ConnectReady();
  ASSERT_THAT(ps(0).do_register.requests(), SizeIs(1));
  EXPECT_THAT(ps(1).do_register.requests(), SizeIs(0));
  const proto::RegisterRequest request = ps(0).do_register.requests()[0];
  EXPECT_EQ(request.sender().task().job(), "worker");
  EXPECT_EQ(request.sender().task().index(), 1);
  EXPECT_EQ(request.job_digest(), "job");
  EXPECT_EQ(request.data_digest(), "data");
  EXPECT_EQ(request.num_ps(), 2);
  EXPECT_EQ(request.num_workers(), 2);
  EXPECT_EQ(request.address(), "");

  // From then on its calls carry the task and its incarnation.
  const proto::Sender sender = ps(0).place.requests()[0].sender();
  EXPECT_EQ(sender.task().job(), "worker");
  EXPECT_EQ(sender.task().index(), 1);
  EXPECT_EQ(sender.incarnation(), kIncarnation);
  EXPECT_EQ(sender.generation(), kGeneration);
}

TEST_F(ConnectTest, AReaderDoesNot) {
  auto cluster = ConnectReady(OptionsFor(kReader));
  EXPECT_THAT(ps(0).do_register.requests(), SizeIs(0));
  EXPECT_EQ(ps(0).place.requests()[0].sender().incarnation(), 0);
  EXPECT_EQ(ps(0).place.requests()[0].sender().generation(), 0);

  // The client has heard of the generation by now.
  Parameters values;
  EXPECT_TRUE(cluster->StartPull(GlobalStep(0), &values)->Await(Late()).ok());
  const proto::Sender sender = ps(1).pull.requests()[0].sender();
  EXPECT_EQ(sender.task().job(), "client");
  EXPECT_EQ(sender.incarnation(), 0);
  EXPECT_EQ(sender.generation(), kGeneration);

  cluster.reset();
  EXPECT_THAT(ps(0).leave.requests(), SizeIs(0));
}

TEST_F(ConnectTest, AWorkerMayLookBeforeItRegisters) {
  Cluster::Options options = OptionsFor(kWorker);
  options.only_reads = true;
  auto cluster = ConnectReady(options);
  EXPECT_THAT(ps(0).do_register.requests(), SizeIs(0));
  // Under its own name, as in its certificate.
  const proto::Sender sender = ps(0).place.requests()[0].sender();
  EXPECT_EQ(sender.task().job(), "worker");
  EXPECT_EQ(sender.incarnation(), 0);
  EXPECT_THAT(Message(cluster->Declare({}, Late())), HasSubstr("only reads"));
  cluster.reset();
  EXPECT_THAT(ps(0).leave.requests(), SizeIs(0));
}

TEST_F(ConnectTest, TheCoordinatorsRefusalComesAtOnce) {
  ps(0).do_register.Do([](int, const auto&, auto*) {
    return absl::AlreadyExistsError("host:1 is /job:worker/task:1");
  });
  const absl::Status status = Connect(OptionsFor(kWorker), timing).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("host:1 is /job:worker/task:1"));
}

TEST_F(ConnectTest, NamesThePsThatDoesNotAnswerAndLeaves) {
  ps(1).Stop();
  Cluster::Options options = OptionsFor(kWorker);
  options.connect_timeout = absl::Milliseconds(500);
  const absl::Status status = Connect(options, timing).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr(PsName(1)));
  ASSERT_THAT(ps(0).leave.requests(), SizeIs(1));
  EXPECT_THAT(ps(0).leave.requests()[0].error(), HasSubstr(PsName(1)));
}

TEST_F(ConnectTest, WaitsForAPsThatStartsLater) {
  const int port = ps(1).port();
  ps(1).Stop();
  std::unique_ptr<FakePs> later;
  Cluster::Options options = OptionsFor(kWorker);
  const std::string name = PsName(1);
  options.on_waiting = [&](const std::string& what) {
    EXPECT_THAT(what, HasSubstr(name));
    if (later == nullptr) later = std::make_unique<FakePs>(port);
  };
  auto cluster = Connect(options, timing);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_NE(later, nullptr);
  *cluster = nullptr;
}

TEST_F(ConnectTest, AJobThatIsDoneNeedsNoOtherPs) {
  ps(1).Stop();
  Tell(kGeneration, proto::DONE);
  Cluster::Options options = OptionsFor(kWorker);
  options.connect_timeout = absl::InfiniteDuration();
  auto cluster = Connect(options, timing);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->state().phase(), proto::DONE);
  // Nor does the coordinator stay up forever.
  ps(0).Stop();
  EXPECT_TRUE(absl::IsFailedPrecondition(
      (*cluster)->Declare({}, absl::InfiniteFuture())));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      (*cluster)->AwaitVariables(absl::InfiniteFuture())));
}

TEST_F(ConnectTest, RefusesOptionsThatCannotBe) {
  Cluster::Options options = OptionsFor(kWorker);
  options.part_bytes = 3;
  EXPECT_THAT(Message(Connect(options, timing).status()),
              HasSubstr("part_bytes is 3, must be from 4 to"));
  options.part_bytes = int64_t{1} << 40;
  EXPECT_TRUE(absl::IsInvalidArgument(Connect(options, timing).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Connect(OptionsFor({kPsJob, 1}), timing).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Connect(OptionsFor({kWorkerJob, 2}), timing).status()));
  EXPECT_THAT(ps(0).do_register.requests(), SizeIs(0));
}

TEST_F(ClusterTest, DeclaresAndPassesErrorsOn) {
  ps(0).declare.Do([](int call, const auto&, auto*) -> absl::Status {
    if (call == 0) return absl::UnavailableError("lost");
    if (call == 1) return absl::OkStatus();
    return absl::AlreadyExistsError("\"a\" has another shape");
  });
  auto cluster = Connect(OptionsFor(kWorker), timing);
  ASSERT_TRUE(cluster.ok());
  proto::Declaration declaration;
  declaration.add_variables()->set_name("a");
  EXPECT_TRUE((*cluster)->Declare(declaration, Late()).ok());
  ASSERT_THAT(ps(0).declare.requests(), SizeIs(2));
  EXPECT_EQ(ps(0).declare.requests()[1].declaration().variables(0).name(), "a");
  const absl::Status status = (*cluster)->Declare(declaration, Late());
  EXPECT_EQ(status, absl::AlreadyExistsError(
                        absl::StrCat(PsName(0), ": \"a\" has another shape")));
}

TEST_F(ClusterTest, AsksForTheVariablesUntilTheyAreThere) {
  ps(0).place.Do([](int call, const auto& request, auto* response) {
    EXPECT_EQ(request.wait_ms(), 100);
    if (call < 2) {
      response->set_waiting_for("/job:worker/task:0");
    } else {
      AnswerPlacement(response);
    }
    return absl::OkStatus();
  });
  auto cluster = ConnectReady();
  EXPECT_EQ(ps(0).place.num_calls(), 3);
  EXPECT_EQ(cluster->declaration().variables_size(), 3);
  EXPECT_TRUE(cluster->AwaitVariables(Late()).ok());
  EXPECT_EQ(ps(0).place.num_calls(), 3);
}

TEST_F(ClusterTest, SaysWhomTheVariablesWaitFor) {
  ps(0).place.Do([](int, const auto&, auto* response) {
    response->set_waiting_for("/job:worker/task:0");
    return absl::OkStatus();
  });
  Cluster::Options options = OptionsFor(kWorker);
  absl::Mutex mutex;
  std::vector<std::string> told;
  options.on_waiting = [&](const std::string& what) {
    absl::MutexLock lock(&mutex);
    told.push_back(what);
  };
  auto cluster = Connect(options, timing);
  ASSERT_TRUE(cluster.ok());
  const absl::Status status = (*cluster)->AwaitVariables(After(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  const std::string what = absl::StrCat("the variables of ", PsName(0),
                                        "; it waits for /job:worker/task:0");
  EXPECT_EQ(status.message(), absl::StrCat("timed out waiting for ", what));
  absl::MutexLock lock(&mutex);
  EXPECT_THAT(told, ::testing::Contains(what));
}

TEST_F(ClusterTest, TestsThePlacement) {
  ps(0).place.Do([](int, const auto&, auto* response) {
    AnswerPlacement(response);
    response->mutable_slices()->RemoveLast();
    return absl::OkStatus();
  });
  auto cluster = Connect(OptionsFor(kWorker), timing);
  ASSERT_TRUE(cluster.ok());
  const absl::Status status = (*cluster)->AwaitVariables(Late());
  EXPECT_EQ(status, absl::InternalError(absl::StrCat(
                        PsName(0),
                        ": placement: the slices of \"c\" do not cover each of "
                        "its 1 elements exactly once")));
}

TEST_F(ClusterTest, AJobThatIsDoneHasNoVariables) {
  ps(0).place.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::DONE);
    return absl::OkStatus();
  });
  auto cluster = Connect(OptionsFor(kWorker), timing);
  ASSERT_TRUE(cluster.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*cluster)->AwaitVariables(Late())));
  EXPECT_EQ((*cluster)->state().phase(), proto::DONE);
}

// Each wait of a client whose job fails.
TEST_F(ClusterTest, AFailureToldInAnAnswerEndsEveryWait) {
  ps(0).pull.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  ps(0).push.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  ps(0).pin.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  ps(0).declare.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  ps(0).contribute.Do([](int, const auto&, auto* response) {
    response->mutable_state()->set_phase(proto::FAILED);
    response->mutable_state()->set_reason("/job:worker/task:0 was lost");
    return absl::OkStatus();
  });
  auto cluster = ConnectReady();
  Parameters values;
  auto pull = cluster->StartPull(GlobalStep(1), &values);
  auto push = cluster->StartPush(GlobalStep(0));
  const std::vector<float> gradient(8);
  ASSERT_TRUE(push->Add(1, gradient).ok());
  ASSERT_TRUE(push->Add(0, absl::MakeSpan(gradient).first(6)).ok());
  auto offered = cluster->StartPush(GlobalStep(0));
  ASSERT_TRUE(offered->Contribute({1}).ok());

  const absl::Status reason = absl::AbortedError("/job:worker/task:0 was lost");
  EXPECT_EQ(offered->Await(Late()).status(), reason);
  EXPECT_EQ(pull->Await(Late()), reason);
  EXPECT_EQ(push->AwaitHeld(Late()), reason);
  EXPECT_EQ(cluster->PinVersion(absl::Seconds(1), Late()).status(), reason);
  EXPECT_EQ(cluster->StartPull(GlobalStep(1), &values)->Await(Late()), reason);
  EXPECT_EQ(cluster->Declare({}, Late()), reason);
  EXPECT_EQ(cluster->state().phase(), proto::FAILED);
  EXPECT_EQ(cluster->state().reason(), "/job:worker/task:0 was lost");
  // The caller can still see what became of the job, and leave.
  EXPECT_TRUE(cluster->GetStatus(Late()).ok());
  EXPECT_TRUE(cluster->Leave("", Late()).ok());
}

TEST_F(ClusterTest, AFailureToldToTheSessionEndsAWait) {
  ps(0).pull.Do([&](int, const auto&, auto*) {
    Tell(kGeneration, proto::FAILED, "told to stop");
    return ps(0).Mute();
  });
  auto cluster = ConnectReady();
  Parameters values;
  EXPECT_EQ(cluster->StartPull(GlobalStep(1), &values)->Await(Late()),
            absl::AbortedError("told to stop"));
  cluster.reset();
  StopPs();
}

TEST_F(ClusterTest, ASilentCoordinatorEndsAWait) {
  ps(0).do_register.Do([](int, const auto&, auto* response) {
    response->set_incarnation(kIncarnation);
    response->set_generation(kGeneration);
    response->set_lease_ms(200);
    return absl::OkStatus();
  });
  ps(0).renew.Do([&](int, const auto&, auto*) { return ps(0).Mute(); });
  ps(1).pull.Do([&](int, const auto&, auto*) { return ps(1).Mute(); });
  Cluster::Options options = OptionsFor(kWorker);
  options.recovery_timeout = absl::Milliseconds(300);
  auto cluster = ConnectReady(options);
  Parameters values;
  const absl::Status status =
      cluster->StartPull(GlobalStep(1), &values)->Await(Late());
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status),
              HasSubstr(absl::StrCat("/job:ps/task:0 at ", ps(0).address(),
                                     ": no answer for 300ms")));
  // The job may continue without it.
  EXPECT_NE(cluster->state().phase(), proto::FAILED);
  cluster.reset();
  EXPECT_THAT(ps(0).leave.requests(), SizeIs(0));
}

TEST_F(ClusterTest, WhatNeedsVariablesSaysSo) {
  auto cluster = Connect(OptionsFor(kWorker), timing);
  ASSERT_TRUE(cluster.ok());
  EXPECT_EQ((*cluster)->declaration().variables_size(), 0);
  Parameters values;
  for (const absl::Status& status :
       {(*cluster)->StartPush(GlobalStep(0))->Add(0, {}),
        (*cluster)->StartPush(GlobalStep(0))->Await(Late()).status(),
        (*cluster)->StartPush(GlobalStep(0))->Contribute({}),
        (*cluster)->StartTakeTicket()->Await(Late()).status(),
        (*cluster)->StartPull(GlobalStep(0), &values)->Await(Late()),
        (*cluster)->PinVersion(absl::Seconds(1), Late()).status(),
        (*cluster)->AwaitDone(Late()),
        (*cluster)->ReportEvaluation({}, Late())}) {
    EXPECT_EQ(status,
              absl::FailedPreconditionError("AwaitVariables was not called"));
  }
  EXPECT_EQ((*cluster)->StartPush(GlobalStep(0))->sequence(), PushSequence(0));
}

TEST_F(ClusterTest, AReaderOnlyReads) {
  auto cluster = ConnectReady(OptionsFor(kReader));
  for (const absl::Status& status :
       {cluster->Declare({}, Late()),
        cluster->StartPush(GlobalStep(0))->Await(Late()).status(),
        cluster->StartPush(GlobalStep(0))->Contribute({}),
        cluster->AwaitDone(Late()), cluster->ReportEvaluation({}, Late())}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr("only reads"));
  }
  EXPECT_TRUE(cluster->GetStatus(Late()).ok());
  EXPECT_TRUE(cluster->Leave("", Late()).ok());
}

TEST_F(ClusterTest, ReportsAnEvaluationAndTheStatus) {
  ps(0).get_status.Do([](int call, const auto&, auto* response) {
    if (call == 0) return absl::UnavailableError("lost");
    response->set_global_step(12);
    return absl::OkStatus();
  });
  auto cluster = ConnectReady();
  proto::EvaluationResult result;
  result.set_accuracy(0.5);
  EXPECT_TRUE(cluster->ReportEvaluation(result, Late()).ok());
  ASSERT_THAT(ps(0).evaluation.requests(), SizeIs(1));
  EXPECT_EQ(ps(0).evaluation.requests()[0].result().accuracy(), 0.5);
  EXPECT_EQ(ps(0).evaluation.requests()[0].sender().incarnation(),
            kIncarnation);
  auto status = cluster->GetStatus(Late());
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->global_step(), 12);
}

TEST_F(ClusterTest, AsksForEventsAndHistory) {
  ps(0).get_events.Do([](int call, const auto& request, auto* response) {
    response->add_events()->set_number(request.after() + 1);
    return absl::OkStatus();
  });
  ps(0).get_history.Do([](int call, const auto& request, auto* response) {
    response->add_points()->set_step(request.after_step() + 1);
    return absl::OkStatus();
  });
  auto cluster = ConnectReady();
  const auto events = cluster->GetEvents(6, Late());
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_THAT(events->events(), SizeIs(1));
  EXPECT_EQ(events->events(0).number(), 7u);
  proto::GetHistoryRequest request;
  request.set_after_step(40);
  const auto history = cluster->GetHistory(request, Late());
  ASSERT_TRUE(history.ok()) << history.status();
  ASSERT_THAT(history->points(), SizeIs(1));
  EXPECT_EQ(history->points(0).step(), 41u);
}

TEST_F(ClusterTest, LeavesOnce) {
  auto cluster = ConnectReady();
  EXPECT_TRUE(cluster->Leave("disk full", Late()).ok());
  cluster.reset();
  ASSERT_THAT(ps(0).leave.requests(), SizeIs(1));
  EXPECT_EQ(ps(0).leave.requests()[0].error(), "disk full");
}

TEST_F(ClusterTest, SaysSoWhenItEndsWithoutLeaving) {
  ConnectReady().reset();
  ASSERT_THAT(ps(0).leave.requests(), SizeIs(1));
  EXPECT_EQ(ps(0).leave.requests()[0].error(),
            "/job:worker/task:1 ended without leaving the cluster");
}

}  // namespace
}  // namespace holdfast::client
