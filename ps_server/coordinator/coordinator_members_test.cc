// SPDX-License-Identifier: Apache-2.0

// Which tasks may join, and which leases have expired
// (docs/protocol/recovery.md, L1 to L3).
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// ---- Register ----

TEST_F(CoordinatorTest, RegisterGivesIncarnationGenerationAndLease) {
  Make();
  const auto answer = Register(Worker(1));
  EXPECT_EQ(answer->incarnation(), 1u);
  EXPECT_EQ(answer->generation(), 1u);
  EXPECT_EQ(answer->lease_ms(), 10000u);
  EXPECT_EQ(state().phase(), proto::STARTING);
}

TEST_F(CoordinatorTest, ARetriedRegisterGetsTheSameIncarnation) {
  Make();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Register(Worker(0), 17)->incarnation(), 1u);
    EXPECT_EQ(Register(Ps(1), 17)->incarnation(), 1u);
  }
  EXPECT_THAT(links_->addresses, ElementsAre(Pair(1, "host1:2000")));
}

TEST_F(CoordinatorTest, ATakenPlaceIsRefusedByName) {
  Make();
  Join(Worker(0), 17);
  Join(Ps(1), 17);
  const auto worker = Register(Worker(0), 18);
  const auto ps = Register(Ps(1), 18);
  EXPECT_FALSE(worker.came()) << "the one before may have died";
  Renew(Worker(0));
  EXPECT_TRUE(Fails(worker.status(), kExists,
                    {"/job:worker/task:0", "host-of-worker0:77", "alive"}));
  EXPECT_FALSE(ps.came());
  Renew(Ps(1));
  EXPECT_TRUE(
      Fails(ps.status(), kExists, {"/job:ps/task:1", "host-of-ps1:77"}));
  // The first process is unaffected.
  EXPECT_EQ(Register(Worker(0), 17)->incarnation(), 1u);
  EXPECT_TRUE(Renew(Worker(0)).status().ok());
}

// The previous process may be about to exit.
TEST_F(CoordinatorTest, ATakenPlaceIsWaitedForAsLongAsALease_L1) {
  Make();
  Join(Worker(0), 17);
  const auto ask = [&](absl::Duration waited) {
    proto::RegisterRequest request = RegisterOf(Worker(0), 18);
    request.set_waited_ms(absl::ToInt64Milliseconds(waited));
    return Ask(request);
  };
  const auto early = ask(options_.lease - absl::Milliseconds(1));
  Renew(Worker(0));
  EXPECT_FALSE(early.came());
  const auto late = ask(options_.lease);
  EXPECT_FALSE(late.came()) << "the one before may have died";
  Renew(Worker(0));
  EXPECT_TRUE(Fails(late.status(), kExists, {"host-of-worker0:77", "alive"}));
}

TEST_F(CoordinatorTest, RegisterRefusesWhatDoesNotBelongNamingBothSides) {
  Make();
  Join(Worker(0));
  using Change = std::function<void(proto::RegisterRequest&)>;
  const struct {
    const char* what;
    TaskId task;
    Change change;
    absl::StatusCode code;
    std::vector<std::string> text;
  } kCases[] = {
      {"ps 0", Ps(0), [](auto&) {}, kExists, {"/job:ps/task:0", "own task"}},
      {"no such ps",
       Ps(2),
       [](auto&) {},
       kInvalid,
       {"/job:ps/task:2", "2 ps, 2 worker and 0 chief"}},
      {"no such worker",
       Worker(2),
       [](auto&) {},
       kInvalid,
       {"/job:worker/task:2", "2 ps, 2 worker and 0 chief"}},
      {"no chief here",
       Chief(),
       [](auto&) {},
       kInvalid,
       {"/job:chief/task:0", "0 chief"}},
      {"too many evaluators",
       {kEvaluatorJob, 1000},
       [](auto&) {},
       kInvalid,
       {"/job:evaluator/task:1000"}},
      {"an evaluator with another job file",
       {kEvaluatorJob, 0},
       [](auto& r) { r.set_job_digest("0ther"); },
       kNotReady,
       {"/job:evaluator/task:0 has job file 0ther"}},
      {"unknown job",
       {"boss", 0},
       [](auto&) {},
       kInvalid,
       {"/job:boss/task:0"}},
      {"protocol version",
       Worker(1),
       [](auto& r) { r.set_protocol_version(kProtocolVersion + 1); },
       kNotReady,
       {absl::StrCat("/job:worker/task:1 speaks protocol version ",
                     kProtocolVersion + 1),
        absl::StrCat("/job:ps/task:0 speaks ", kProtocolVersion)}},
      {"number of ps",
       Ps(1),
       [](auto& r) { r.set_num_ps(3); },
       kNotReady,
       {"/job:ps/task:1 has 3 ps and 2 worker", "/job:ps/task:0 has 2 and 2"}},
      {"number of workers",
       Worker(1),
       [](auto& r) { r.set_num_workers(5); },
       kNotReady,
       {"/job:worker/task:1 has 2 ps and 5 worker",
        "/job:ps/task:0 has 2 and 2"}},
      {"job file",
       Worker(1),
       [](auto& r) { r.set_job_digest("0ther"); },
       kNotReady,
       {"/job:worker/task:1 has job file 0ther", "/job:worker/task:0 has j0b"}},
      {"data",
       Worker(1),
       [](auto& r) { r.set_data_digest("0ther"); },
       kNotReady,
       {"/job:worker/task:1 has data 0ther", "/job:worker/task:0 has da7a"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    proto::RegisterRequest request = RegisterOf(c.task);
    c.change(request);
    EXPECT_TRUE(Fails(Ask(request).status(), c.code, c.text));
  }
  // It left nothing behind.
  EXPECT_THAT(links_->addresses, IsEmpty());
  EXPECT_THAT(Status().tasks(), SizeIs(2)) << "ps 0 and worker 0";
  Join(Worker(1));
  Join(Ps(1));
}

TEST_F(CoordinatorTest, APsHasNoDigests) {
  Make();
  Join(Ps(1));
  Join(Worker(0));
  Join(Worker(1));
}

TEST_F(CoordinatorTest, TheChiefIsTheFirstWorker) {
  Make(1, 2, /*has_chief=*/true);
  EXPECT_TRUE(Fails(Register(Worker(1)).status(), kInvalid,
                    {"/job:worker/task:1", "1 worker and 1 chief"}));
  EXPECT_TRUE(Fails(Register({kChiefJob, 1}).status(), kInvalid));
  StartTraining();
  EXPECT_TRUE(Fails(Offer(Chief(), 0, 1, 1).status(), kInvalid,
                    {"seat 1 of 2 is not the worker's"}));
  EXPECT_TRUE(Fails(Offer(Worker(0), 0, 0, 1).status(), kInvalid,
                    {"seat 0 of 2 is not the worker's"}));
  const auto chief = Offer(Chief(), 0, 0, 1);
  const auto worker = Offer(Worker(0), 0, 1, 1);
  EXPECT_EQ(chief->verdict(), proto::ACCEPTED);
  EXPECT_EQ(worker->verdict(), proto::ACCEPTED);
  ASSERT_THAT(links_->commits, SizeIs(1));
  EXPECT_EQ(S(Commit()), "0:chief0#1*0.5 1:worker0#1*0.5");
}

TEST_F(CoordinatorTest, WithoutASessionNothingGoes) {
  Make();
  Join(Worker(0));
  const auto expect = [&](const absl::Status& status) {
    EXPECT_TRUE(Fails(status, kNotFound, {"has no session", "register first"}));
  };
  for (const uint64_t incarnation : {0, 2}) {
    SCOPED_TRACE(incarnation);
    incarnations_[Worker(0)] = incarnation;
    expect(Declare().status());
    expect(Leave(Worker(0)).status());
    if (incarnation > 0) {
      expect(Renew(Worker(0)).status());
      expect(Offer(Worker(0), 0, 0, 1).status());
    }
    proto::ReportEvaluationRequest report;
    *report.mutable_sender() = SenderOf(Worker(0));
    expect(Ask(report).status());
  }
  expect(Renew(Worker(1)).status());
  expect(Offer(Worker(1), 0, 1, 1).status());
}

TEST_F(CoordinatorTest, AnotherGenerationChangesNothing) {
  StartTraining();
  for (const uint64_t generation : {0, 2}) {
    SCOPED_TRACE(generation);
    proto::Sender sender = SenderOf(Worker(0));
    sender.set_generation(generation);
    const std::vector<std::string> text = {
        absl::StrCat("generation ", generation), "the job is in 1"};

    proto::ContributeRequest offer = OfferOf(Worker(0), 0, 0, 1);
    *offer.mutable_sender() = sender;
    const auto answer = Contribute(offer);
    EXPECT_EQ(answer->verdict(), proto::ABORTED);
    EXPECT_EQ(answer->generation(), 1u);

    // This is how a task learns the generation.
    proto::RenewLeaseRequest renew;
    *renew.mutable_sender() = sender;
    EXPECT_EQ(Ask(renew)->generation(), 1u);
    proto::DeclareRequest declare;
    *declare.mutable_sender() = sender;
    *declare.mutable_declaration() = MakeDeclaration();
    EXPECT_TRUE(Fails(Ask(declare).status(), kAborted, text));
    proto::ReportEvaluationRequest report;
    *report.mutable_sender() = sender;
    EXPECT_TRUE(Fails(Ask(report).status(), kAborted, text));
  }
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().pushes().aborted(), 0u);
  EXPECT_FALSE(Status().has_evaluation());
  // The seat is free.
  OfferBoth(0);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
}

// ---- Leases ----

TEST_F(CoordinatorTest, WhereNobodyIsWaitedForALeaseThatRunsOutEndsTheJob) {
  recovery_timeout_ = absl::ZeroDuration();
  StartTraining();
  const auto parked = Offer(Worker(0), 0, 0, 1);
  Pass(kLease - absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(
      state().reason(),
      "/job:worker/task:1 (host-of-worker1:77) is lost: nothing was heard "
      "from it for 10s");
  EXPECT_EQ(Renew(Worker(0))->state().reason(), state().reason());
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  EXPECT_EQ(links_->ends[0].request.state().phase(), proto::FAILED);
  EXPECT_EQ(links_->ends[0].request.state().reason(), state().reason());
  EXPECT_TRUE(Fails(Register(Worker(1), 2).status(), kAborted, {"is lost"}));
}

TEST_F(CoordinatorTest, APsThatIsSilentEndsTheJobToo) {
  Make();
  Join(Ps(1));
  Pass(kLease, {});
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("/job:ps/task:1 (host-of-ps1:77)"));
}

TEST_F(CoordinatorTest, ARenewalLastsAWholeLease) {
  recovery_timeout_ = absl::ZeroDuration();
  Make();
  Join(Worker(0));
  Pass(kLease - absl::Seconds(1), {});
  const auto renewed = Renew(Worker(0));
  EXPECT_EQ(renewed->generation(), 1u);
  EXPECT_EQ(renewed->state().phase(), proto::STARTING);
  Pass(kLease - absl::Seconds(1), {});
  EXPECT_EQ(state().phase(), proto::STARTING);
  Pass(absl::Seconds(1), {});
  EXPECT_EQ(state().phase(), proto::FAILED);
}

// The coordinator's own process was stalled: it may not have heard from the
// others.
TEST_F(CoordinatorTest, ALateTickGrantsALease) {
  recovery_timeout_ = absl::ZeroDuration();
  StartTraining();
  Advance(absl::Seconds(20));
  Tick();
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(kLease - absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("/job:worker/task:1"));
}

TEST_F(CoordinatorTest, ALateTickGrantsALeaseToAStepToo) {
  StartTraining();
  Offer(Worker(0), 0, 0, 1);
  Advance(absl::Seconds(200));
  Tick();
  Pass(kLease - absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING) << state().reason();
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("step 0 was open for 1m40s"));
}

TEST_F(CoordinatorTest, AShortDelayOfTheTickGrantsNothing) {
  recovery_timeout_ = absl::ZeroDuration();
  Make();
  Join(Worker(0));
  // Half a lease each, so no tick is late.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(state().phase(), proto::STARTING);
    Advance(kLease / 2);
    Tick();
  }
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorTest, WhoIsLostWhenAllStepsAreFixedIsNotMissed) {
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);
  Pass(kLease + absl::Seconds(1), AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  AckCommits();
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorTest, APsIsMissedUntilTheLastCommitHolds) {
  StartTraining(MakeDeclaration(1));
  OfferBoth(0);
  Pass(kLease + absl::Seconds(1), AllBut(Ps(1)));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("/job:ps/task:1"));
}

}  // namespace
}  // namespace holdfast
