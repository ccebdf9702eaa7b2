// SPDX-License-Identifier: Apache-2.0

// Which declarations are accepted, from which tasks, and how often.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// From a worker that was refused because of its digest.
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
  EXPECT_EQ(status.message().find("start all"), absl::string_view::npos)
      << "its digest was refused with that: " << status;
  EXPECT_EQ(status.message().find("seed"), absl::string_view::npos)
      << "the first difference is enough: " << status;
}

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
    EXPECT_TRUE(Fails(
        Declare(declaration, Worker(1)).status(), kExists,
        {"/job:worker/task:1", c.text, "start all workers with the same"}));
  }
  EXPECT_TRUE(Declare().status().ok()) << "the first stands";
}

// ---- Agreed facts ----

proto::Declaration WithFact(const std::string& name, const std::string& value) {
  proto::Declaration declaration = MakeDeclaration();
  (*declaration.mutable_agreed())[name] = value;
  return declaration;
}

TEST_F(CoordinatorTest, TheFirstValueOfAFactIsTheJobs_R12) {
  StartTraining(WithFact("dataset length", "60000"));
  EXPECT_FALSE(GetPlacement(0)->declaration().agreed().contains("seed"));
  EXPECT_TRUE(Declare(WithFact("seed", "7"), Worker(1)).status().ok());
  EXPECT_TRUE(Declare(MakeDeclaration()).status().ok()) << "need not name any";
  proto::Declaration other = WithFact("dataset length", "50000");
  (*other.mutable_agreed())["new"] = "1";
  EXPECT_TRUE(Fails(
      Declare(other, Worker(1)).status(), kExists,
      {"/job:worker/task:1 has dataset length 50000, the job has 60000: "}));
  EXPECT_TRUE(Fails(Declare(WithFact("seed", "8")).status(), kExists,
                    {"/job:worker/task:0 has seed 8, the job has 7: "}));
  EXPECT_EQ(state().phase(), proto::TRAINING) << "it is refused alone";
  const auto placement = GetPlacement(0);
  const auto& agreed = placement->declaration().agreed();
  EXPECT_EQ(agreed.size(), 2u) << "nothing of what was refused";
  EXPECT_EQ(agreed.at("dataset length"), "60000");
  EXPECT_EQ(agreed.at("seed"), "7");
  EXPECT_EQ(links_->restores.size(), 0u);
}

TEST_F(CoordinatorTest, WithoutASessionFactsAreOnlyCompared_R12) {
  StartTraining(WithFact("seed", "7"));
  incarnations_[Worker(1)] = 0;
  EXPECT_TRUE(Fails(Declare(WithFact("seed", "8"), Worker(1)).status(), kExists,
                    {"seed 8, the job has 7"}));
  EXPECT_TRUE(Declare(WithFact("new", "1"), Worker(1)).status().ok());
  EXPECT_EQ(GetPlacement(0)->declaration().agreed_size(), 1);
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
       {"variable \"b\": names optimizer 1, but there are 1, "
        "numbered from 0"}},
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
  // None of them took effect: a valid declaration is still the first.
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

// ---- Jobs with tickets ----

TEST_F(CoordinatorTest, AnAsynchronousDeclarationIsFilledIn) {
  proto::Declaration sparse = MakeDeclaration(7);
  sparse.mutable_consistency()->mutable_asynchronous();
  proto::Declaration full = Asynchronous(7, 1);
  full.set_examples(proto::BY_TICKET);
  full.set_total_tickets(7);
  full.set_num_workers(2);
  full.mutable_lost_workers()->set_policy(proto::LostWorkers::CONTINUE);
  full.mutable_lost_workers()->set_min_replicas(1);
  full.mutable_lost_workers()->set_max_workers(2);
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  EXPECT_TRUE(Declare(sparse).status().ok());
  // Defaults spelled out are no difference.
  EXPECT_TRUE(Declare(full, Worker(1)).status().ok());
  PuppetLinks::AnswerAll(links_->restores);
  EXPECT_EQ(GetPlacement(0)->declaration().SerializeAsString(),
            full.SerializeAsString());
  EXPECT_EQ(Status().total_steps(), 7u);
  EXPECT_EQ(Status().replicas_to_aggregate(), 0u);
}

TEST_F(CoordinatorTest, ASynchronousDeclarationIsFilledIn) {
  StartTraining(WithMode(2, 2));
  const proto::Declaration by_step = GetPlacement(0)->declaration();
  EXPECT_EQ(by_step.examples(), proto::BY_STEP);
  EXPECT_EQ(by_step.num_workers(), 2u);
  EXPECT_EQ(by_step.total_tickets(), 0u);
  Make();
  StartTraining(ByTicket(2, 2, 5));
  const proto::Declaration by_ticket = GetPlacement(0)->declaration();
  EXPECT_EQ(by_ticket.examples(), proto::BY_TICKET);
  EXPECT_EQ(by_ticket.total_tickets(), 5u);
  EXPECT_EQ(by_ticket.total_steps(), 3u);
  Make();
  proto::Declaration of_steps_alone = ByTicket(2, 2, 5);
  of_steps_alone.clear_total_tickets();
  StartTraining(of_steps_alone);
  EXPECT_EQ(GetPlacement(0)->declaration().total_tickets(), 6u);
}

TEST_F(CoordinatorTest, TicketsThatCannotBeDeclared) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  const struct {
    const char* what;
    proto::Declaration declaration;
    std::function<void(proto::Declaration&)> change;
    std::vector<std::string> text;
  } kCases[] = {
      {"asynchronous by step",
       Asynchronous(10),
       [](auto& d) { d.set_examples(proto::BY_STEP); },
       {"must be BY_TICKET in an asynchronous job", "is BY_STEP"}},
      {"asynchronous, fewer tickets than steps",
       Asynchronous(10),
       [](auto& d) { d.set_total_tickets(9); },
       {"total_tickets is 9", "total_steps, 10"}},
      {"asynchronous, more",
       Asynchronous(10),
       [](auto& d) { d.set_total_tickets(11); },
       {"total_tickets is 11", "total_steps, 10"}},
      {"neither tickets nor steps",
       ByTicket(2, 2, 5),
       [](auto& d) {
         d.set_total_tickets(0);
         d.set_total_steps(0);
       },
       {"total_tickets is 0"}},
      {"more steps than the tickets make",
       ByTicket(2, 2, 5),
       [](auto& d) { d.set_total_steps(4); },
       {"total_tickets is 5, which make 3 steps of 2", "total_steps is 4"}},
      {"fewer",
       ByTicket(2, 2, 5),
       [](auto& d) { d.set_total_steps(2); },
       {"total_tickets is 5, which make 3 steps of 2", "total_steps is 2"}},
      {"as many as there were with one ticket less",
       ByTicket(2, 2, 4),
       [](auto& d) {
         d.set_total_tickets(3);
         d.set_total_steps(1);
       },
       {"total_tickets is 3, which make 2 steps of 2"}},
      {"tickets by step",
       WithMode(2, 2),
       [](auto& d) { d.set_total_tickets(20); },
       {"total_tickets is 20", "BY_STEP"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    proto::Declaration declaration = c.declaration;
    c.change(declaration);
    EXPECT_TRUE(Fails(Declare(declaration).status(), kInvalid, c.text));
  }
  EXPECT_THAT(links_->restores, IsEmpty());
  EXPECT_TRUE(Declare(ByTicket(2, 2, 4)).status().ok());
}

}  // namespace
}  // namespace holdfast
