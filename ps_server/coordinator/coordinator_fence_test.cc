// SPDX-License-Identifier: Apache-2.0

// What happens to the tickets and pushes of workers that are lost or leave
// while an asynchronous job continues (docs/protocol/asynchronous.md, step A5).
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The tasks and incarnations, like "worker0.1 worker1.2".
template <typename Lives>
std::string Names(const Lives& lives) {
  std::vector<std::string> names;
  for (const proto::WorkerLife& life : lives) {
    names.push_back(absl::StrCat(life.worker().job(), life.worker().index(),
                                 ".", life.incarnation()));
  }
  return absl::StrJoin(names, " ");
}

// The pushes with clip factors and learning rates, like "worker0.1#3*0.5@0.01".
std::string Told(const proto::ResolveRequest& resolve) {
  std::vector<std::string> told;
  for (const proto::AppliedPush& push : resolve.applied()) {
    EXPECT_EQ(push.scalars_size(), 1);
    told.push_back(absl::StrCat(
        push.from().worker().job(), push.from().worker().index(), ".",
        push.from().incarnation(), "#", push.sequence(), "*",
        push.clip_factor(), "@",
        push.scalars_size() > 0 ? push.scalars(0).learning_rate() : -1));
  }
  return absl::StrJoin(told, " ");
}

class CoordinatorFenceTest : public CoordinatorTest {
 protected:
  // These tasks are silent until their leases have expired.
  void Lose(const std::vector<TaskId>& lost) {
    lost_.insert(lost_.end(), lost.begin(), lost.end());
    PassWithout(kLease);
  }
  void PassWithout(absl::Duration time) { Pass(time, Present()); }
  std::vector<TaskId> Present() const {
    std::vector<TaskId> present;
    for (const TaskId& task : AllTasks()) {
      if (std::find(lost_.begin(), lost_.end(), task) == lost_.end()) {
        present.push_back(task);
      }
    }
    return present;
  }
  // A new process takes the place of one that was lost.
  void Replace(const TaskId& task) {
    lost_.erase(std::remove(lost_.begin(), lost_.end(), task), lost_.end());
    Join(task, /*nonce=*/next_nonce_++);
  }

  static proto::AppliedPush Applied(const TaskId& worker, uint64_t sequence,
                                    uint64_t incarnation = 1,
                                    float clip_factor = 1,
                                    uint64_t staleness = 0) {
    proto::AppliedPush push;
    push.mutable_from()->mutable_worker()->set_job(worker.job);
    push.mutable_from()->mutable_worker()->set_index(worker.index);
    push.mutable_from()->set_incarnation(incarnation);
    push.set_sequence(sequence);
    push.set_clip_factor(clip_factor);
    push.set_examples(clip_factor == 0 ? 0 : 10);
    push.set_staleness(staleness);
    return push;
  }
  // Confirms the oldest Fence to `ps`: these pushes were applied there.
  void Confirm(uint32_t ps,
               const std::vector<proto::AppliedPush>& applied = {}) {
    proto::FenceResponse response;
    for (const proto::AppliedPush& push : applied) {
      *response.add_applied() = push;
    }
    PuppetLinks::Answer(links_->fences, ps, absl::OkStatus(), response);
  }
  void ConfirmAll() { PuppetLinks::AnswerAll(links_->fences); }
  void AckResolve(uint32_t ps) { PuppetLinks::Answer(links_->resolves, ps); }
  void AckResolves() { PuppetLinks::AnswerAll(links_->resolves); }
  proto::FenceRequest Fence(size_t i = 0) const {
    if (i < links_->fences.size()) return links_->fences[i].request;
    ADD_FAILURE() << "no such Fence was sent";
    return proto::FenceRequest();
  }
  proto::ResolveRequest Resolve(size_t i = 0) const {
    if (i < links_->resolves.size()) return links_->resolves[i].request;
    ADD_FAILURE() << "no such Resolve was sent";
    return proto::ResolveRequest();
  }

 private:
  std::vector<TaskId> lost_;
  uint64_t next_nonce_ = 100;
};

// The learning rate is 0.01 times the ticket's index, so that scalars reveal
// the index.
proto::Declaration Rising(uint64_t tickets, uint32_t depth = 1) {
  proto::Declaration declaration = Asynchronous(tickets, depth);
  proto::Optimizer& optimizer = *declaration.mutable_optimizers(0);
  optimizer.set_learning_rate(1);
  optimizer.mutable_schedule()->set_warmup_steps(100);
  return declaration;
}

// ---- Which workers are fenced, and how ----

TEST_F(CoordinatorFenceTest, ALostWorkerIsShutOutAndTheJobGoesOn) {
  StartTraining(Asynchronous(20));
  Take(Worker(1), 1);
  Take(Worker(1), 2);
  PassWithout(absl::Seconds(1));
  Pass(kLease - absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_THAT(links_->fences, IsEmpty());
  Pass(absl::Milliseconds(250), AllBut(Worker(1)));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
  for (const auto& sent : links_->fences) {
    EXPECT_EQ(sent.request.sender().task().job(), kPsJob);
    EXPECT_EQ(sent.request.sender().task().index(), 0u);
    EXPECT_EQ(sent.request.sender().generation(), 1u);
    EXPECT_EQ(Names(sent.request.lives()), "worker1.1");
  }
  // The others continue meanwhile, with tickets that are not out.
  EXPECT_EQ(Index(Take(Worker(0), 1)), 2u);
  EXPECT_EQ(Index(Take(Worker(0), 2, {Spent(1)})), 3u);
  EXPECT_EQ(Status().global_step(), 1u);
  const proto::GetStatusResponse status = Status();
  std::vector<std::string> alive;
  for (const proto::TaskStatus& task : status.tasks()) {
    if (task.alive()) alive.push_back(ToTaskId(task.task()).ToString());
  }
  EXPECT_THAT(alive, ElementsAre("/job:ps/task:0", "/job:ps/task:1",
                                 "/job:worker/task:0"));
}

TEST_F(CoordinatorFenceTest, AFencedLifeIsRefusedForEver) {
  StartTraining(Asynchronous(3));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Take(Worker(0), 2);
  const auto expect_refused = [&] {
    for (const uint64_t sequence : {0, 1, 2, 3}) {
      const auto answer = Take(Worker(1), sequence, {Spent(1)});
      EXPECT_EQ(answer->verdict(), proto::FENCED) << sequence;
      EXPECT_EQ(answer->generation(), 1u);
      EXPECT_TRUE(Empty(answer));
    }
    EXPECT_TRUE(
        Fails(Renew(Worker(1)).status(), kAborted,
              {"/job:worker/task:1", "has been fenced", "lease of 10s"}));
    EXPECT_EQ(Offer(Worker(1), 0, 1, 1)->verdict(), proto::FENCED);
    // The first Register arrives again: it does not revive the worker.
    EXPECT_EQ(Register(Worker(1))->incarnation(), 1u);
    EXPECT_EQ(Status().global_step(), 0u) << "nothing is booked";
  };
  Lose({Worker(1)});
  expect_refused();
  ConfirmAll();
  expect_refused();
  AckResolves();
  expect_refused();
  EXPECT_EQ(Leave(Worker(1))->state().phase(), proto::TRAINING);
  expect_refused();
  EXPECT_THAT(links_->fences, IsEmpty()) << "it is fenced once";
}

TEST_F(CoordinatorFenceTest, WhatAFencedLifeWaitsForIsAnswered) {
  StartTraining(Asynchronous(2));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  proto::TakeTicketRequest request = TakeOf(Worker(1), 2);
  request.set_wait_ms(30000);
  const auto lost = Take(request);
  request = TakeOf(Worker(0), 2);
  request.set_wait_ms(30000);
  const auto other = Take(request);
  Lose({Worker(1)});
  EXPECT_TRUE(Empty(lost));
  EXPECT_EQ(lost->verdict(), proto::FENCED);
  EXPECT_FALSE(other.came());
  ConfirmAll();
  AckResolves();
  EXPECT_EQ(Index(other), 1u);
}

TEST_F(CoordinatorFenceTest, ANewcomerTakesItsPlaceMeanwhile) {
  StartTraining(Asynchronous(20));
  EXPECT_EQ(Index(Take(Worker(1), 1)), 0u);
  Lose({Worker(1)});
  Replace(Worker(1));
  ASSERT_EQ(incarnations_[Worker(1)], 2u);
  // The newcomer has its own sequences, and holds none of the earlier tickets.
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u);
  EXPECT_EQ(Index(Take(Worker(1), 2)), 2u);
  EXPECT_TRUE(Renew(Worker(1)).status().ok());
  const auto as_before = [&](auto ask) {
    incarnations_[Worker(1)] = 1;
    const auto answer = ask();
    incarnations_[Worker(1)] = 2;
    return answer;
  };
  EXPECT_EQ(as_before([&] { return Take(Worker(1), 1); })->verdict(),
            proto::FENCED);
  EXPECT_EQ(as_before([&] { return Offer(Worker(1), 0, 1, 1); })->verdict(),
            proto::FENCED);
  EXPECT_TRUE(Fails(as_before([&] { return Renew(Worker(1)); }).status(),
                    kAborted, {"another process has taken its place"}));
  Confirm(0);
  Confirm(1, {Applied(Worker(1), 1)});
  EXPECT_EQ(Names(Resolve().lives()), "worker1.1");
  AckResolves();
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Index(Take(Worker(1), 1)), 1u) << "as it was";
  EXPECT_EQ(Book(Worker(1), 1)->global_step(), 2u);
}

TEST_F(CoordinatorFenceTest, WhoLeavesInOrderIsShutOutToo) {
  StartTraining(Asynchronous(20));
  Take(Worker(0), 1);
  const auto parked = Take(Worker(0), 2);
  EXPECT_EQ(Leave(Worker(0))->state().phase(), proto::TRAINING);
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
  EXPECT_EQ(Names(Fence().lives()), "worker0.1");
  EXPECT_EQ(Take(Worker(0), 1)->verdict(), proto::FENCED);
  EXPECT_EQ(Leave(Worker(0))->state().phase(), proto::TRAINING) << "again";
  ConfirmAll();
  AckResolves();
  EXPECT_THAT(links_->fences, IsEmpty());
  EXPECT_EQ(Index(Take(Worker(1), 1)), 0u);
}

TEST_F(CoordinatorFenceTest, WhoLeavesWithAnErrorEndsTheJob) {
  StartTraining(Asynchronous(20));
  const auto parked = Take(Worker(0), 1);
  EXPECT_EQ(Leave(Worker(1), "out of memory")->state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason(),
            "/job:worker/task:1 (host-of-worker1:77) left before the end: out "
            "of memory");
  EXPECT_THAT(links_->fences, IsEmpty());
}

TEST_F(CoordinatorFenceTest, APsIsNotSpared) {
  StartTraining(Asynchronous(20));
  Leave(Ps(1));
  EXPECT_EQ(state().phase(), proto::FAILED);
  Make();
  StartTraining(Asynchronous(20));
  Lose({Ps(1)});
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("/job:ps/task:1"));
}

TEST_F(CoordinatorFenceTest, WhoIsLostBeforeIsShutOutWhenTheVariablesExist) {
  for (const bool by_leaving : {false, true}) {
    SCOPED_TRACE(by_leaving);
    Make();
    for (const TaskId& task : AllTasks()) Join(task);
    ASSERT_TRUE(Declare(Asynchronous(20)).status().ok());
    if (by_leaving) {
      Leave(Worker(1));
    } else {
      Pass(kLease, AllBut(Worker(1)));
    }
    EXPECT_THAT(links_->fences, IsEmpty());
    PuppetLinks::AnswerAll(links_->restores);
    EXPECT_EQ(state().phase(), proto::TRAINING);
    ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
    EXPECT_EQ(Names(Fence().lives()), "worker1.1");
    EXPECT_EQ(Index(Take(Worker(0), 1)), 0u) << "the others go on";
  }
}

// ---- What is decided ----

TEST_F(CoordinatorFenceTest, WhatAnyShardHasAppliedCounts_T5) {
  Make(3, 2);
  StartTraining(Rising(20, /*depth=*/4));
  Take(Worker(0), 1);
  for (uint64_t i = 1; i <= 5; ++i) Take(Worker(1), i);  // tickets 1 to 5
  Book(Worker(1), 1);
  Lose({Worker(1)});
  // Push 1 is booked; 2 was applied by two shards, 3 by one, 4 and 5 by none.
  Confirm(0, {Applied(Worker(1), 1), Applied(Worker(1), 2, 1, 0.5f, 3)});
  Confirm(2, {Applied(Worker(1), 2, 1, 0.5f, 7), Applied(Worker(1), 3, 1, 0)});
  EXPECT_THAT(links_->resolves, IsEmpty()) << "ps 1 has not confirmed";
  Confirm(1, {Applied(Worker(1), 1), Applied(Worker(1), 2, 1, 0.5f, 5)});
  ASSERT_THAT(PuppetLinks::To(links_->resolves), ElementsAre(0, 1, 2));
  for (const auto& sent : links_->resolves) {
    EXPECT_EQ(sent.request.sender().task().job(), kPsJob);
    EXPECT_EQ(sent.request.sender().generation(), 1u);
    EXPECT_EQ(Names(sent.request.lives()), "worker1.1");
    EXPECT_EQ(Told(sent.request), "worker1.1#2*0.5@0.02 worker1.1#3*0@0.03");
  }
  AckResolve(2);
  AckResolve(0);
  EXPECT_EQ(Status().global_step(), 1u) << "ps 1 has not resolved it";
  EXPECT_EQ(Index(Take(Worker(0), 2)), 6u) << "nothing has come back";
  AckResolve(1);
  const proto::GetStatusResponse status = Status();
  EXPECT_EQ(status.global_step(), 3u);
  EXPECT_EQ(status.pushes().accepted(), 3u);
  EXPECT_EQ(status.pushes().fenced(), 2u);
  EXPECT_EQ(status.examples(), 20u) << "push 3 had none";
  ASSERT_THAT(status.workers(), SizeIs(1));
  EXPECT_EQ(status.workers(0).worker().index(), 1u);
  EXPECT_EQ(status.workers(0).pushes(), 3u);
  // Push 2's is the greatest of the shards' answers.
  ASSERT_THAT(status.staleness(), SizeIs(2));
  EXPECT_EQ(status.staleness(0).staleness(), 0u);
  EXPECT_EQ(status.staleness(1).staleness(), 7u);
  EXPECT_EQ(status.train_loss(), 1)
      << "of the loss of 2 and 3 nothing is known";
  // The tickets of the two pushes that no shard applied are handed out again,
  // lowest first.
  EXPECT_EQ(Index(Take(Worker(0), 3)), 4u);
  EXPECT_EQ(Index(Take(Worker(0), 4)), 5u);
  EXPECT_EQ(Index(Take(Worker(0), 5)), 7u);
}

TEST_F(CoordinatorFenceTest, WhoeverWaitsGetsWhatComesBack) {
  StartTraining(Asynchronous(3));
  Take(Worker(1), 1);
  Take(Worker(1), 2);
  Take(Worker(0), 1);
  proto::TakeTicketRequest request = TakeOf(Worker(0), 2);
  request.set_wait_ms(30000);
  const auto waits = Take(request);
  Lose({Worker(1)});
  ConfirmAll();
  AckResolve(1);
  EXPECT_FALSE(waits.came());
  AckResolve(0);
  EXPECT_EQ(Index(waits), 0u);
}

TEST_F(CoordinatorFenceTest, WhatALostWorkerDidMayBeTheLastOfTheJob) {
  StartTraining(Asynchronous(2));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Book(Worker(0), 1);
  const auto waits = Take(Worker(0), 2);
  Lose({Worker(1)});
  Confirm(0, {Applied(Worker(1), 1)});
  Confirm(1);
  AckResolve(0);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  AckResolve(1);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(Status().global_step(), 2u);
  EXPECT_EQ(Take(Worker(0), 3)->state().phase(), proto::DONE);
  Leave(Worker(0));
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  AckEnds();
  EXPECT_TRUE(finished());
}

TEST_F(CoordinatorFenceTest, ALifeWithoutTicketsIsShutOutAllTheSame) {
  StartTraining(Asynchronous(20));
  Lose({Worker(1)});
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
  ConfirmAll();
  EXPECT_EQ(Told(Resolve()), "");
  AckResolves();
  EXPECT_EQ(Status().pushes().fenced(), 0u);
}

// ---- Messages that are lost ----

TEST_F(CoordinatorFenceTest, WhatIsNotAnsweredIsSentAgainTheSame) {
  StartTraining(Rising(20));
  Take(Worker(1), 1);
  Lose({Worker(1)});
  const std::string fence = Fence(1).SerializeAsString();
  Confirm(0);
  PassWithout(kResendAfter - absl::Milliseconds(250));
  EXPECT_THAT(PuppetLinks::To(links_->fences), ElementsAre(1));
  PassWithout(absl::Milliseconds(250));
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(1, 1));
  EXPECT_EQ(Fence(1).SerializeAsString(), fence);
  Confirm(1, {Applied(Worker(1), 1)});
  ASSERT_THAT(PuppetLinks::To(links_->resolves), ElementsAre(0, 1));
  // A second answer is no longer of any use; nor is an error.
  Confirm(1, {Applied(Worker(1), 1), Applied(Worker(1), 2)});
  const std::string resolve = Resolve().SerializeAsString();
  AckResolve(1);
  PassWithout(kResendAfter);
  ASSERT_THAT(PuppetLinks::To(links_->resolves), ElementsAre(0, 0));
  EXPECT_EQ(Resolve(1).SerializeAsString(), resolve);
  AckResolve(0);
  EXPECT_EQ(Status().global_step(), 1u);
  PuppetLinks::Answer(links_->resolves, 0, absl::InternalError("late"));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  EXPECT_EQ(Status().global_step(), 1u) << "once";
}

TEST_F(CoordinatorFenceTest, WhatWasLostIsSentAgainSoon) {
  StartTraining(Asynchronous(20));
  Take(Worker(1), 1);
  Lose({Worker(1)});
  Confirm(0);
  PuppetLinks::Answer(links_->fences, 1, absl::UnavailableError("lost"));
  PassWithout(absl::Milliseconds(250));
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(1));
  EXPECT_THAT(links_->resolves, IsEmpty()) << "silence confirms nothing";
  Confirm(1, {Applied(Worker(1), 1)});
  AckResolve(1);
  PuppetLinks::Answer(links_->resolves, 0,
                      absl::DeadlineExceededError("no answer"));
  PassWithout(absl::Milliseconds(250));
  ASSERT_THAT(PuppetLinks::To(links_->resolves), ElementsAre(0));
  EXPECT_EQ(Status().global_step(), 0u);
  AckResolve(0);
  EXPECT_EQ(Status().global_step(), 1u);
}

TEST_F(CoordinatorFenceTest, AnAnswerToAnEarlierFenceIsNoneToTheNext) {
  Make(2, 3);
  StartTraining(Asynchronous(20));
  Take(Worker(1), 1);
  Take(Worker(2), 1);
  Lose({Worker(1)});
  Pass(kResendAfter, {Ps(1), Worker(0), Worker(2)});
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1, 0, 1));
  Confirm(0);
  Confirm(1);
  AckResolves();
  Leave(Worker(2));
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1, 0, 1));
  // These are answers to the first.
  Confirm(0, {Applied(Worker(2), 1)});
  Confirm(1, {Applied(Worker(2), 1)});
  EXPECT_THAT(links_->resolves, IsEmpty());
  Confirm(0);
  Confirm(1);
  EXPECT_EQ(Told(Resolve()), "");
}

TEST_F(CoordinatorFenceTest, AShardThatRefusesEndsTheJobByName) {
  for (const bool at_resolve : {false, true}) {
    SCOPED_TRACE(at_resolve);
    Make();
    StartTraining(Asynchronous(20));
    Take(Worker(1), 1);
    Leave(Worker(1));
    const absl::Status refusal = absl::InternalError("what is this?");
    if (at_resolve) {
      ConfirmAll();
      PuppetLinks::Answer(links_->resolves, 1, refusal);
    } else {
      PuppetLinks::Answer(links_->fences, 1, refusal);
    }
    EXPECT_EQ(state().phase(), proto::FAILED);
    EXPECT_THAT(state().reason(),
                AllOf(HasSubstr("/job:ps/task:1"), HasSubstr("what is this?")));
    // Late answers do nothing.
    PuppetLinks::AnswerAll(links_->fences);
    PuppetLinks::AnswerAll(links_->resolves);
    EXPECT_EQ(Status().pushes().fenced(), 0u);
  }
}

TEST_F(CoordinatorFenceTest, AShardThatIsWaitedForIsNamed) {
  StartTraining(Asynchronous(1));
  Take(Worker(1), 1);
  Lose({Worker(1)});
  Confirm(0);
  const auto waits = Take(Worker(0), 1);
  PassWithout(absl::Seconds(1));
  EXPECT_EQ(waits->waiting_for(), "fencing lost workers at /job:ps/task:1");
  Confirm(1);
  AckResolve(1);
  EXPECT_EQ(Status().waiting_for(), "fencing lost workers at /job:ps/task:0");
}

// ---- Several ----

TEST_F(CoordinatorFenceTest, ASecondFenceWaitsForTheFirst) {
  Make(2, 4);
  StartTraining(Asynchronous(20));
  for (const uint32_t worker : {0, 1, 2, 3}) Take(Worker(worker), 1);
  Leave(Worker(3));
  EXPECT_EQ(Names(Fence().lives()), "worker3.1");
  Leave(Worker(2));
  ASSERT_THAT(links_->fences, SizeIs(2)) << "of the first alone";
  // A worker without tickets is no exception; one that comes back may leave
  // again.
  Join(Worker(3), 77);
  Leave(Worker(3));
  Confirm(0, {Applied(Worker(3), 1)});
  Confirm(1);
  EXPECT_THAT(links_->fences, IsEmpty());
  EXPECT_EQ(Names(Resolve().lives()), "worker3.1");
  Leave(Worker(1));
  AckResolve(0);
  EXPECT_THAT(links_->fences, IsEmpty());
  AckResolve(1);
  EXPECT_EQ(Status().global_step(), 1u);
  // Those that came due meanwhile go together.
  ASSERT_THAT(PuppetLinks::To(links_->fences), ElementsAre(0, 1));
  EXPECT_EQ(Names(Fence().lives()), "worker2.1 worker3.2 worker1.1");
  Confirm(0, {Applied(Worker(2), 1), Applied(Worker(1), 1)});
  Confirm(1);
  EXPECT_EQ(Names(Resolve().lives()), "worker2.1 worker3.2 worker1.1");
  EXPECT_EQ(Told(Resolve()), "worker1.1#1*1@0.1 worker2.1#1*1@0.1")
      << "of the first one nothing is left";
  AckResolves();
  EXPECT_EQ(Status().global_step(), 3u);
  EXPECT_EQ(Index(Take(Worker(0), 2)), 4u);
  EXPECT_THAT(links_->fences, IsEmpty());
}

TEST_F(CoordinatorFenceTest, TwoThatAreLostTogetherAreShutOutTogether) {
  Make(1, 3);
  StartTraining(Asynchronous(3));
  for (const uint32_t worker : {0, 1, 2}) Take(Worker(worker), 1);
  Lose({Worker(1), Worker(2)});
  EXPECT_EQ(Names(Fence().lives()), "worker1.1 worker2.1");
  ConfirmAll();
  AckResolves();
  EXPECT_THAT(links_->fences, IsEmpty());
  EXPECT_EQ(Status().pushes().fenced(), 2u);
  EXPECT_EQ(Index(Take(Worker(0), 2)), 1u);
}

// ---- The end ----

TEST_F(CoordinatorFenceTest, AJobThatNobodyComesToEndsByName) {
  StartTraining(Asynchronous(20));
  Take(Worker(0), 1);
  Book(Worker(0), 1);
  Lose({Worker(0), Worker(1)});
  for (int i = 0; i < 2; ++i) {
    ConfirmAll();
    AckResolves();
  }
  PassWithout(recovery_timeout_);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  PassWithout(absl::Milliseconds(250));
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason(),
            "/job:worker/task:0 (host-of-worker0:77, lost), /job:worker/task:1 "
            "(host-of-worker1:77, lost): nothing was heard for 5m10.25s, and "
            "no replacement joined");
}

TEST_F(CoordinatorFenceTest, WhoNeverCameIsNamedToo) {
  Make(1, 3, /*has_chief=*/true);
  Join(Chief());
  Declare(Asynchronous(20), Chief());
  PuppetLinks::AnswerAll(links_->restores);
  Pass(absl::Seconds(100), {Chief()});
  EXPECT_EQ(state().phase(), proto::TRAINING);
  Pass(absl::Milliseconds(250), {Chief()});
  EXPECT_EQ(state().reason(),
            "no push came through for 1m40s: waited for a ticket to be taken "
            "by /job:chief/task:0 (host-of-chief0:77), "
            "/job:worker/task:0 (not joined), /job:worker/task:1 (not joined)");
}

TEST_F(CoordinatorFenceTest, WhoHoldsTicketsAndDoesNotPushIsNamed) {
  proto::Declaration declaration = Asynchronous(20);
  declaration.mutable_timeouts()->set_step_seconds(30);
  StartTraining(declaration);
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Pass(absl::Seconds(29), AllTasks());
  Book(Worker(0), 1);
  Pass(absl::Seconds(30), AllTasks());
  EXPECT_EQ(state().phase(), proto::TRAINING) << "from the last spent ticket";
  EXPECT_EQ(Status().waiting_for(), "/job:worker/task:1 (host-of-worker1:77)");
  Pass(absl::Milliseconds(250), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_EQ(state().reason(),
            "no push came through for 30s: waited for /job:worker/task:1 "
            "(host-of-worker1:77)");
}

TEST_F(CoordinatorFenceTest, WhatAFenceSpendsGivesTimeToo) {
  StartTraining(Asynchronous(20));
  Take(Worker(1), 1);
  Pass(absl::Seconds(85), AllTasks());
  Lose({Worker(1)});
  Confirm(0);
  Confirm(1, {Applied(Worker(1), 1)});
  AckResolves();
  EXPECT_DOUBLE_EQ(Status().training_seconds(), 95);
  PassWithout(absl::Seconds(100));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  PassWithout(absl::Milliseconds(250));
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorFenceTest, WhatAFenceReturnsGivesNone) {
  StartTraining(Asynchronous(20));
  Take(Worker(1), 1);
  Pass(absl::Seconds(85), AllTasks());
  Lose({Worker(1)});
  ConfirmAll();
  AckResolves();
  PassWithout(absl::Seconds(5));
  EXPECT_EQ(state().phase(), proto::TRAINING);
  PassWithout(absl::Milliseconds(250));
  EXPECT_EQ(state().phase(), proto::FAILED);
}

TEST_F(CoordinatorFenceTest, ANewcomerSavesTheJob) {
  StartTraining(Asynchronous(2));
  Take(Worker(0), 1);
  Take(Worker(1), 1);
  Lose({Worker(0), Worker(1)});
  for (int i = 0; i < 2; ++i) {
    ConfirmAll();
    AckResolves();
  }
  Replace(Worker(1));
  EXPECT_EQ(Index(Take(Worker(1), 1)), 0u);
  EXPECT_EQ(Index(Take(Worker(1), 2)), 1u);
  Take(Worker(1), 0, {Spent(1), Spent(2)});
  EXPECT_EQ(state().phase(), proto::DONE);
}

TEST_F(CoordinatorFenceTest, TheJobMayBeDoneBeforeAFenceIs) {
  Make(2, 3);
  StartTraining(Asynchronous(1));
  Take(Worker(0), 1);
  Lose({Worker(2)});
  Book(Worker(0), 1);
  EXPECT_EQ(state().phase(), proto::DONE) << "the lost one held nothing";
  PassWithout(absl::Seconds(50));
  PuppetLinks::AnswerAll(links_->fences);
  AckResolves();
  EXPECT_EQ(Status().global_step(), 1u);
  EXPECT_EQ(Book(Worker(0), 1)->state().phase(), proto::DONE);
  // The time counts from when the job became DONE: a worker that stays gets no
  // extra time.
  PassWithout(absl::Seconds(50));
  EXPECT_THAT(links_->ends, IsEmpty());
  PassWithout(absl::Milliseconds(250));
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  // A fenced worker may still ask, and be told of the end.
  EXPECT_EQ(Renew(Worker(2))->state().phase(), proto::DONE);
}

TEST_F(CoordinatorFenceTest, WhoIsLostAfterTheEndIsNotShutOut) {
  StartTraining(Asynchronous(1));
  Take(Worker(0), 1);
  Book(Worker(0), 1);
  Lose({Worker(1)});
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_THAT(links_->fences, IsEmpty());
  EXPECT_EQ(Renew(Worker(1))->state().phase(), proto::DONE);
}

TEST_F(CoordinatorFenceTest, TheEndTakesThePlaceOfAFence) {
  Make(2, 3);
  StartTraining(Asynchronous(20));
  Take(Worker(1), 1);
  Leave(Worker(1));
  Leave(Worker(2));
  Fail("told to stop");
  ASSERT_THAT(PuppetLinks::To(links_->ends), ElementsAre(0, 1));
  ConfirmAll();
  EXPECT_THAT(links_->resolves, IsEmpty());
  AckEnds();
  Renew(Worker(0));
  EXPECT_TRUE(finished());
}

// ---- Re-entrancy ----

TEST_F(CoordinatorFenceTest, AnswersMayCallBack) {
  // Shards that answer inside the call, and workers that ask again inside the
  // answer.
  Make(2, 3);
  QuickLinks links;
  Begin(&links);
  for (const TaskId& task : AllTasks()) Join(task);
  ASSERT_TRUE(Declare(Asynchronous(3)).status().ok());
  Take(Worker(1), 1);
  Take(Worker(1), 2);
  Take(Worker(2), 1);
  const auto ask = [&](const TaskId& task, uint64_t sequence, auto then) {
    proto::TakeTicketRequest request = TakeOf(task, sequence);
    request.set_wait_ms(30000);
    Send(request, then);
  };
  std::vector<std::string> heard;
  // When told that it is fenced, worker 2 comes back as a newcomer and waits
  // for a ticket of its own; what its former life held goes to worker 0, which
  // asks for one more.
  ask(Worker(2), 2, [&](absl::StatusOr<proto::TakeTicketResponse> response) {
    heard.push_back(proto::Verdict_Name(response->verdict()));
    Send(RegisterOf(Worker(2), 50),
         [&](absl::StatusOr<proto::RegisterResponse> joined) {
           incarnations_[Worker(2)] = joined->incarnation();
           ask(Worker(2), 1,
               [&](absl::StatusOr<proto::TakeTicketResponse> next) {
                 heard.push_back(
                     absl::StrCat("newcomer ", next->ticket().index()));
               });
         });
  });
  ask(Worker(0), 1, [&](absl::StatusOr<proto::TakeTicketResponse> response) {
    heard.push_back(absl::StrCat("worker 0 ", response->ticket().index()));
    ask(Worker(0), 2, [&](absl::StatusOr<proto::TakeTicketResponse> next) {
      heard.push_back(absl::StrCat("worker 0 ", next->ticket().index()));
    });
  });
  Pass(kLease, {Ps(1), Worker(0), Worker(1)});
  EXPECT_THAT(heard, ElementsAre("FENCED", "worker 0 2"));
  Leave(Worker(1));
  EXPECT_THAT(heard,
              ElementsAre("FENCED", "worker 0 2", "newcomer 0", "worker 0 1"));
  EXPECT_THAT(
      links.told,
      ElementsAre("Restore@0", "Restore@1", "Fence@0", "Fence@1", "Resolve@0",
                  "Resolve@1", "Fence@0", "Fence@1", "Resolve@0", "Resolve@1"));
}

}  // namespace
}  // namespace holdfast
