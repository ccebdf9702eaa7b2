// Who is here, the way to the first step, and the status.
#include "ps_server/coordinator/coordinator.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc_limits.h"
#include "common/task_id.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
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
  // Who was here first is as he was.
  EXPECT_EQ(Register(Worker(0), 17)->incarnation(), 1u);
  EXPECT_TRUE(Renew(Worker(0)).status().ok());
}

// As the process before may be on its way out.
TEST_F(CoordinatorTest, ATakenPlaceIsWaitedForAsLongAsALease_L1) {
  Make();
  Join(Worker(0), 17);
  const auto ask = [&](absl::Duration waited) {
    proto::RegisterRequest request = RegisterOf(Worker(0), 18);
    request.set_waited_ms(absl::ToInt64Milliseconds(waited));
    return Ask(&Coordinator::Register, request);
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
      {"evaluator",
       {kEvaluatorJob, 0},
       [](auto&) {},
       kInvalid,
       {"/job:evaluator/task:0"}},
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
       {"/job:ps/task:1 has 3 ps and 2 worker", "/job:ps/task:0 2 and 2"}},
      {"number of workers",
       Worker(1),
       [](auto& r) { r.set_num_workers(5); },
       kNotReady,
       {"/job:worker/task:1 has 2 ps and 5 worker", "/job:ps/task:0 2 and 2"}},
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
    EXPECT_TRUE(
        Fails(Ask(&Coordinator::Register, request).status(), c.code, c.text));
  }
  // It left nothing behind.
  EXPECT_THAT(links_->addresses, IsEmpty());
  EXPECT_THAT(Status().tasks(), SizeIs(1));
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
    expect(Ask(&Coordinator::ReportEvaluation, report).status());
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

    // It is how a task comes to know the generation.
    proto::RenewLeaseRequest renew;
    *renew.mutable_sender() = sender;
    EXPECT_EQ(Ask(&Coordinator::RenewLease, renew)->generation(), 1u);
    proto::DeclareRequest declare;
    *declare.mutable_sender() = sender;
    *declare.mutable_declaration() = MakeDeclaration();
    EXPECT_TRUE(
        Fails(Ask(&Coordinator::Declare, declare).status(), kAborted, text));
    proto::ReportEvaluationRequest report;
    *report.mutable_sender() = sender;
    EXPECT_TRUE(Fails(Ask(&Coordinator::ReportEvaluation, report).status(),
                      kAborted, text));
  }
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().pushes().aborted(), 0u);
  EXPECT_FALSE(Status().has_evaluation());
  // The seat is free.
  OfferBoth(0);
  EXPECT_EQ(S(Commit()), "0:worker0#1*0.5 1:worker1#1*0.5");
}

// One that was refused by its digest.
TEST_F(CoordinatorTest, WithoutASessionADeclarationIsOnlyCompared) {
  StartTraining();
  incarnations_[Worker(1)] = 0;
  EXPECT_TRUE(Declare(MakeDeclaration(), Worker(1)).status().ok());
  proto::Declaration other = MakeDeclaration();
  other.mutable_optimizers(0)->set_learning_rate(0.125);
  other.set_seed(99);
  const absl::Status status = Declare(other, Worker(1)).status();
  EXPECT_TRUE(Fails(
      status, kExists,
      {"/job:worker/task:1", "optimizers[0].learning_rate: ", " -> 0.125"}));
  EXPECT_EQ(status.message().find("seed"), absl::string_view::npos)
      << "the first difference is enough: " << status;
}

// ---- Declare and create ----

TEST_F(CoordinatorTest, DeclareFillsInNAndM) {
  const struct {
    const char* what;
    uint32_t n, m;  // 0: left out
    uint32_t resolved_n, resolved_m;
  } kCases[] = {{"neither", 0, 0, 2, 2},
                {"M", 0, 2, 2, 2},
                {"N", 1, 0, 1, 2},
                {"N = 3 M", 6, 0, 6, 2},
                {"N above M, and no multiple of it", 3, 0, 3, 2},
                {"both", 1, 2, 1, 2}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    Make();
    proto::Declaration declaration = MakeDeclaration();
    auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
    if (c.n > 0) mode.set_replicas_to_aggregate(c.n);
    if (c.m > 0) mode.set_total_num_replicas(c.m);
    StartTraining(declaration);
    const auto placement = GetPlacement(0);
    const auto& resolved = placement->declaration().consistency().synchronous();
    EXPECT_EQ(resolved.replicas_to_aggregate(), c.resolved_n);
    EXPECT_EQ(resolved.total_num_replicas(), c.resolved_m);
    EXPECT_EQ(Status().replicas_to_aggregate(), c.resolved_n);
    EXPECT_EQ(Status().total_num_replicas(), c.resolved_m);
  }
}

TEST_F(CoordinatorTest, DeclaringTheSameAgainIsFine) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  EXPECT_EQ(Declare()->generation(), 1u);
  EXPECT_TRUE(Declare().status().ok());
  EXPECT_TRUE(Declare(MakeDeclaration(), Worker(1)).status().ok());
  // Defaults spelled out are no difference.
  EXPECT_TRUE(Declare(WithMode(2, 2)).status().ok());
  EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1));
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_TRUE(Declare().status().ok());
  EXPECT_THAT(links_->restores, IsEmpty());
  EXPECT_THAT(GetPlacement(0)->slices(), SizeIs(2));
}

TEST_F(CoordinatorTest, DeclaringOtherwiseNamesTheDifference) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare().status().ok());
  const struct {
    const char* what;
    std::function<void(proto::Declaration&)> change;
    std::string text;
  } kCases[] = {
      {"a shape", [](auto& d) { d.mutable_variables(0)->set_shape(1, 4); },
       "variables[0].shape[1]: 3 -> 4"},
      {"a name", [](auto& d) { d.mutable_variables(1)->set_name("bias"); },
       "variables[1].name: \"b\" -> \"bias\""},
      {"a learning rate",
       [](auto& d) { d.mutable_optimizers(0)->set_learning_rate(0.5f); },
       "optimizers[0].learning_rate: 0.1 -> 0.5"},
      {"N",
       [](auto& d) {
         d.mutable_consistency()
             ->mutable_synchronous()
             ->set_replicas_to_aggregate(1);
       },
       "consistency.synchronous.replicas_to_aggregate: 2 -> 1"},
      {"steps", [](auto& d) { d.set_total_steps(11); },
       "total_steps: 10 -> 11"},
      {"one variable less",
       [](auto& d) { d.mutable_variables()->RemoveLast(); }, "variables[1]"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    proto::Declaration declaration = MakeDeclaration();
    c.change(declaration);
    EXPECT_TRUE(Fails(Declare(declaration, Worker(1)).status(), kExists,
                      {"/job:worker/task:1", c.text}));
  }
  EXPECT_TRUE(Declare().status().ok()) << "the first stands";
}

TEST_F(CoordinatorTest, BadDeclarations) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  const auto mode = [](proto::Declaration& d) {
    return d.mutable_consistency()->mutable_synchronous();
  };
  const struct {
    const char* what;
    std::function<void(proto::Declaration&)> change;
    std::vector<std::string> text;
  } kCases[] = {
      {"a name twice",
       [](auto& d) { d.mutable_variables(1)->set_name("w"); },
       {"variable \"w\": declared twice"}},
      {"dtype",
       [](auto& d) {
         d.mutable_variables(0)->set_dtype(proto::DATA_TYPE_UNSPECIFIED);
       },
       {"variable \"w\": dtype DATA_TYPE_UNSPECIFIED", "FLOAT32"}},
      {"negative dimension",
       [](auto& d) { d.mutable_variables(0)->set_shape(0, -2); },
       {"variable \"w\": shape [-2,3]"}},
      {"more elements than 64 bits count",
       [](auto& d) { d.mutable_variables(0)->set_shape(0, int64_t{1} << 62); },
       {"variable \"w\": shape [4611686018427387904,3]"}},
      {"more bytes than 64 bits count",
       [](auto& d) {
         d.mutable_variables(0)->mutable_shape()->Clear();
         d.mutable_variables(0)->add_shape(int64_t{1} << 61);
       },
       {"variable \"w\""}},
      {"no such optimizer",
       [](auto& d) { d.mutable_variables(1)->set_optimizer(1); },
       {"variable \"b\": optimizer 1 of 1"}},
      {"names of variables in a variable",
       [](auto& d) {
         d.mutable_variables(1)->mutable_compression()->set_variables("b");
       },
       {"variable \"b\": compression.variables"}},
      {"M above the cluster's",
       [&](auto& d) { mode(d)->set_total_num_replicas(3); },
       {"total_num_replicas is 3", "2 workers"}},
      {"M below the cluster's",
       [&](auto& d) { mode(d)->set_total_num_replicas(1); },
       {"total_num_replicas is 1", "2 workers"}},
      {"N of 0",
       [&](auto& d) { mode(d)->set_replicas_to_aggregate(0); },
       {"replicas_to_aggregate is 0"}},
      {"N of more than 1024 M",
       [&](auto& d) { mode(d)->set_replicas_to_aggregate(2049); },
       {"replicas_to_aggregate is 2049", "1024 times total_num_replicas, 2"}},
      {"no such placement",
       [](auto& d) {
         d.set_placement(static_cast<proto::PlacementStrategy>(7));
       },
       {"unknown placement strategy 7"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    proto::Declaration declaration = MakeDeclaration();
    c.change(declaration);
    EXPECT_TRUE(Fails(Declare(declaration).status(), kInvalid, c.text));
  }
  EXPECT_THAT(links_->restores, IsEmpty());
  // Nothing of them stands: a good one is the first.
  EXPECT_TRUE(Declare(WithMode(2048, 2)).status().ok());
  ASSERT_THAT(links_->restores, SizeIs(2));
  EXPECT_THAT(links_->restores[0].request.slices(), SizeIs(2));
}

TEST_F(CoordinatorTest, OnlyWorkersDeclare) {
  Make();
  Join(Ps(1));
  EXPECT_TRUE(Fails(Declare(MakeDeclaration(), Ps(1)).status(), kInvalid,
                    {"/job:ps/task:1", "may not declare"}));
}

TEST_F(CoordinatorTest, VariablesAreMadeOnceEveryPsHasJoined) {
  for (const bool declare_first : {true, false}) {
    SCOPED_TRACE(declare_first);
    Make(3, 1);
    Join(Worker(0));
    if (declare_first) {
      ASSERT_TRUE(Declare().status().ok());
    }
    Join(Ps(2));
    EXPECT_THAT(links_->restores, IsEmpty());
    Join(Ps(1));
    if (!declare_first) {
      EXPECT_THAT(links_->restores, IsEmpty());
      ASSERT_TRUE(Declare().status().ok());
    }
    EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(0, 1, 2));
    EXPECT_THAT(links_->addresses,
                ElementsAre(Pair(2, "host2:2000"), Pair(1, "host1:2000")));

    // Each shard is told all: what is declared, with defaults, and all places.
    proto::Declaration declared = WithMode(1, 1);
    declared.set_examples(proto::BY_STEP);
    declared.set_num_workers(1);
    declared.mutable_lost_workers()->set_policy(proto::LostWorkers::WAIT);
    for (const auto& sent : links_->restores) {
      const proto::RestoreRequest& restore = sent.request;
      EXPECT_EQ(restore.sender().task().job(), kPsJob);
      EXPECT_EQ(restore.sender().task().index(), 0u);
      EXPECT_EQ(restore.sender().generation(), 1u);
      EXPECT_EQ(restore.declaration().SerializeAsString(),
                declared.SerializeAsString());
      ASSERT_THAT(restore.slices(), SizeIs(2));
      EXPECT_EQ(restore.slices(0).variable(), "w");
      EXPECT_EQ(restore.slices(0).begin(), 0u);
      EXPECT_EQ(restore.slices(0).size(), 6u);
      EXPECT_EQ(restore.slices(0).ps(), 0u);
      EXPECT_EQ(restore.slices(1).variable(), "b");
      EXPECT_EQ(restore.slices(1).size(), 3u);
      EXPECT_EQ(restore.slices(1).ps(), 1u);
    }

    // Training begins when all have them.
    PuppetLinks::Answer(links_->restores, 2);
    PuppetLinks::Answer(links_->restores, 0);
    EXPECT_EQ(state().phase(), proto::STARTING);
    EXPECT_FALSE(GetPlacement(0)->ready());
    PuppetLinks::Answer(links_->restores, 1);
    EXPECT_EQ(state().phase(), proto::TRAINING);
    const auto placement = GetPlacement(0);
    EXPECT_TRUE(placement->ready());
    EXPECT_EQ(placement->generation(), 1u);
    EXPECT_EQ(placement->declaration().SerializeAsString(),
              declared.SerializeAsString());
    ASSERT_THAT(placement->slices(), SizeIs(2));
    EXPECT_EQ(placement->slices(1).ps(), 1u);
    EXPECT_THAT(placement->ps_addresses(),
                ElementsAre("host0:2000", "host1:2000", "host2:2000"));
  }
}

TEST_F(CoordinatorTest, PlacementGoesByTheStrategy) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.set_placement(proto::GREEDY_BY_BYTES);
  proto::Variable& third = *declaration.add_variables();
  third = declaration.variables(1);
  third.set_name("c");
  StartTraining(declaration);
  // w [2,3] of 24 bytes goes to ps 0; b and c of 12 to ps 1, with 0 and
  // then 12.
  const auto placement = GetPlacement(0);
  ASSERT_THAT(placement->slices(), SizeIs(3));
  EXPECT_EQ(placement->slices(0).ps(), 0u);
  EXPECT_EQ(placement->slices(1).ps(), 1u);
  EXPECT_EQ(placement->slices(2).ps(), 1u);
}

TEST_F(CoordinatorTest, CreateIsSentAgainUntilItHolds) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare().status().ok());
  PuppetLinks::Answer(links_->restores, 0);
  PuppetLinks::Answer(links_->restores, 1,
                      absl::UnavailableError("not yet up"));
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_THAT(PuppetLinks::To(links_->restores), ElementsAre(1));
  PuppetLinks::Answer(links_->restores, 1);
  EXPECT_EQ(state().phase(), proto::TRAINING);
}

TEST_F(CoordinatorTest, AShardThatRefusesItsVariablesEndsTheJob) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare().status().ok());
  PuppetLinks::Answer(links_->restores, 1,
                      absl::InvalidArgumentError("no room"));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              AllOf(HasSubstr("/job:ps/task:1"), HasSubstr("no room")));
  PuppetLinks::Answer(links_->restores, 0);
  EXPECT_EQ(state().phase(), proto::FAILED);
}

// "w" [2,3] on ps 0 and "b" [3] on ps 1, with SGD: the values, the next version
// and one that is read, and a push of each of the two workers, so 5 times 24
// and 5 times 12 bytes (memory_plan.h).
TEST_F(CoordinatorTest, AJobThatCannotFitIsRefusedByName) {
  const struct {
    int64_t of_ps0;
    uint64_t of_ps1;
    std::string text;  // empty: it fits
  } kCases[] = {
      {0, 0, ""},
      {120, 60, ""},
      {119, 60, "/job:ps/task:0 may take 119 bytes"},
      {120, 59, "/job:ps/task:1 may take 59 bytes"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.of_ps0 << ", " << c.of_ps1);
    Make();
    options_.memory_limit_bytes = c.of_ps0;
    coordinator_ =
        std::make_unique<Coordinator>(options_, &clock_, links_.get(), nullptr);
    Join(Worker(0));
    ASSERT_TRUE(Declare().status().ok());
    EXPECT_EQ(state().phase(), proto::STARTING) << "ps 1 may have more";
    proto::RegisterRequest ps1 = RegisterOf(Ps(1));
    ps1.set_memory_limit_bytes(c.of_ps1);
    ASSERT_TRUE(Ask(&Coordinator::Register, ps1).status().ok());
    if (c.text.empty()) {
      EXPECT_EQ(state().phase(), proto::STARTING) << state().reason();
      EXPECT_THAT(links_->restores, SizeIs(2));
    } else {
      EXPECT_EQ(state().phase(), proto::FAILED);
      EXPECT_THAT(state().reason(), HasSubstr(c.text));
      EXPECT_THAT(links_->restores, IsEmpty());
    }
  }
}

TEST_F(CoordinatorTest, GetPlacementWaitsAndTellsForWhat) {
  Make();
  Join(Worker(0));
  const auto soon = GetPlacement(500);
  const auto later = GetPlacement(60000);
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_FALSE(soon.came());
  Pass(absl::Milliseconds(250), AllTasks());
  ASSERT_TRUE(soon.came());
  EXPECT_FALSE(soon->ready());
  EXPECT_EQ(soon->state().phase(), proto::STARTING);
  EXPECT_EQ(soon->waiting_for(),
            "/job:ps/task:1 (not joined), the declaration by "
            "/job:worker/task:0 (host-of-worker0:77)");
  ASSERT_TRUE(Declare().status().ok());
  EXPECT_EQ(GetPlacement(0)->waiting_for(), "/job:ps/task:1 (not joined)");
  Join(Ps(1));
  PuppetLinks::Answer(links_->restores, 0);
  EXPECT_EQ(GetPlacement(0)->waiting_for(),
            "the making of variables at /job:ps/task:1");
  EXPECT_FALSE(later.came());
  PuppetLinks::Answer(links_->restores, 1);
  ASSERT_TRUE(later.came());
  EXPECT_TRUE(later->ready());
}

TEST_F(CoordinatorTest, NobodyIsParkedForLongerThanTheLimit) {
  StartTraining();
  const auto offer = [&] {
    proto::ContributeRequest request = OfferOf(Worker(0), 0, 0, 1);
    request.set_wait_ms(~uint64_t{0});
    return Contribute(request);
  }();
  Pass(kMaxPark - absl::Milliseconds(250), AllTasks());
  EXPECT_FALSE(offer.came());
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_TRUE(offer.came());

  Make();
  const auto placement = GetPlacement(~uint64_t{0});
  Pass(kMaxPark - absl::Milliseconds(250), {});
  EXPECT_FALSE(placement.came());
  Pass(absl::Milliseconds(250), {});
  EXPECT_TRUE(placement.came());
}

// ---- Status ----

TEST_F(CoordinatorTest, StatusAtTheStart) {
  Make();
  Join(Worker(1));
  const proto::GetStatusResponse status = Status();
  EXPECT_EQ(status.version(), kVersion);
  EXPECT_EQ(status.generation(), 1u);
  EXPECT_EQ(status.state().phase(), proto::STARTING);
  EXPECT_EQ(status.global_step(), 0u);
  EXPECT_EQ(status.total_steps(), 0u);
  EXPECT_EQ(status.training_seconds(), 0);
  EXPECT_EQ(status.train_loss(), 0);
  EXPECT_FALSE(status.has_evaluation());
  ASSERT_THAT(status.tasks(), SizeIs(1));
  EXPECT_EQ(status.tasks(0).task().job(), kWorkerJob);
  EXPECT_EQ(status.tasks(0).task().index(), 1u);
  EXPECT_EQ(status.tasks(0).incarnation(), 1u);
  EXPECT_EQ(status.tasks(0).process(), "host-of-worker1:77");
  EXPECT_TRUE(status.tasks(0).alive());
}

TEST_F(CoordinatorTest, StatusTellsWhoIsAlive) {
  TrainToTheEnd();
  Leave(Worker(0));
  std::map<std::string, bool> alive;
  const proto::GetStatusResponse status = Status();
  for (const proto::TaskStatus& task : status.tasks()) {
    alive[absl::StrCat(task.task().job(), task.task().index())] = task.alive();
  }
  EXPECT_THAT(alive, ElementsAre(Pair("ps1", true), Pair("worker0", false),
                                 Pair("worker1", true)));
}

TEST_F(CoordinatorTest, StatusTellsHowLongWorkersWaitForInput) {
  StartTraining();
  proto::RenewLeaseRequest request;
  *request.mutable_sender() = SenderOf(Worker(1));
  request.mutable_input_wait()->set_recent(0.5);
  request.mutable_input_wait()->set_overall(0.25);
  Ask(&Coordinator::RenewLease, request);
  // What it does not tell stays.
  request.clear_input_wait();
  Ask(&Coordinator::RenewLease, request);
  const proto::GetStatusResponse status = Status();
  for (const proto::TaskStatus& task : status.tasks()) {
    const bool told = task.task().job() == "worker" && task.task().index() == 1;
    EXPECT_EQ(task.has_input_wait(), told);
    if (!told) continue;
    EXPECT_EQ(task.input_wait().recent(), 0.5);
    EXPECT_EQ(task.input_wait().overall(), 0.25);
  }
}

// As workers are told: a verdict comes before every shard has committed.
TEST_F(CoordinatorTest, StatusCountsDecidedStepsAndTheirExamples) {
  StartTraining();
  const auto offer = [&](uint32_t worker, uint64_t step, uint64_t examples,
                         double loss) {
    proto::ContributeRequest request =
        OfferOf(Worker(worker), step, worker, step + 1, examples);
    request.set_loss(loss);
    Contribute(request);
  };
  offer(0, 0, 10, 1);
  EXPECT_EQ(Status().global_step(), 0u);
  EXPECT_EQ(Status().examples(), 0u) << "not decided yet";
  EXPECT_EQ(Status().train_loss(), 0);
  EXPECT_EQ(Status().pushes().accepted(), 0u);
  EXPECT_THAT(Status().workers(), IsEmpty());
  offer(1, 0, 30, 2);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  AckCommits();
  EXPECT_EQ(Status().pushes().accepted(), 2u);
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Status().total_steps(), 10u);
  EXPECT_EQ(Status().examples(), 40u);
  // (10 x 1 + 30 x 2) / 40.
  EXPECT_DOUBLE_EQ(Status().train_loss(), 1.75);
  // The loss of a push without examples is not looked at:
  // (70 + 40 x 0.5) / 80.
  offer(0, 1, 40, 0.5);
  offer(1, 1, 0, 1e30);
  AckCommits();
  EXPECT_EQ(Status().examples(), 80u);
  EXPECT_DOUBLE_EQ(Status().train_loss(), 1.125);
}

TEST_F(CoordinatorTest, TrainLossIsOfTheLast100Steps) {
  Make(1, 1);
  StartTraining(MakeDeclaration(200));
  for (uint64_t step = 0; step < 103; ++step) {
    proto::ContributeRequest request = OfferOf(Worker(0), step, 0, step + 1);
    request.set_acked_through(step);
    request.set_loss(static_cast<double>(step));
    Contribute(request);
    AckCommits();
    // The mean of 0 to `step`, and, from step 99 on, of the last 100:
    // step - 49.5.
    const double last = static_cast<double>(step);
    EXPECT_DOUBLE_EQ(Status().train_loss(),
                     step < 100 ? last / 2 : last - 49.5);
  }
  EXPECT_EQ(Status().examples(), 1030u);
}

TEST_F(CoordinatorTest,
       TrainingSecondsAreFromTheFirstStepsStartToTheLastCommit) {
  Make();
  Join(Ps(1));
  Join(Worker(0));
  Declare();
  PuppetLinks::AnswerAll(links_->restores);
  Advance(absl::Seconds(3));
  EXPECT_EQ(Status().training_seconds(), 0) << "worker 1 has not joined";
  Join(Worker(1));
  Advance(absl::Seconds(2));
  EXPECT_EQ(Status().training_seconds(), 0) << "no step is committed";
  OfferBoth(0);
  Advance(absl::Seconds(1));
  AckCommits();
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 3);
  Advance(absl::Seconds(4));
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 3);
  OfferBoth(1);
  AckCommits();
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 7);
}

TEST_F(CoordinatorTest, StatusTellsWhoIsWaitedForOnlyWhenItIsLate) {
  Make();
  Join(Worker(0));
  Pass(absl::Seconds(2), AllTasks());
  EXPECT_EQ(Status().waiting_for(), "");
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_THAT(Status().waiting_for(), HasSubstr("/job:ps/task:1 (not joined)"));

  Make();
  StartTraining();
  Offer(Worker(0), 0, 0, 1);
  Pass(absl::Seconds(2), AllTasks());
  EXPECT_EQ(Status().waiting_for(), "");
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(Status().waiting_for(), "/job:worker/task:1 (host-of-worker1:77)");
  Offer(Worker(1), 0, 1, 1);
  EXPECT_EQ(Status().waiting_for(), "") << "step 1 has just opened";
  Pass(absl::Seconds(2) + absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(Status().waiting_for(),
            "the commit of step 0 at /job:ps/task:0, /job:ps/task:1");
}

TEST_F(CoordinatorTest, StatusTellsTheLatestEvaluation) {
  StartTraining();
  const auto report = [&](uint64_t step, double accuracy) {
    proto::ReportEvaluationRequest request;
    *request.mutable_sender() = SenderOf(Worker(0));
    request.mutable_result()->set_step(step);
    request.mutable_result()->set_examples(1000);
    request.mutable_result()->set_loss(0.5);
    request.mutable_result()->set_accuracy(accuracy);
    EXPECT_EQ(Ask(&Coordinator::ReportEvaluation, request)->generation(), 1u);
  };
  report(5, 0.75);
  report(3, 0.5);  // came late
  EXPECT_EQ(Status().evaluation().step(), 5u);
  EXPECT_EQ(Status().evaluation().examples(), 1000u);
  EXPECT_EQ(Status().evaluation().loss(), 0.5);
  EXPECT_EQ(Status().evaluation().accuracy(), 0.75);
  report(8, 0.875);
  EXPECT_EQ(Status().evaluation().step(), 8u);
}

}  // namespace
}  // namespace holdfast
