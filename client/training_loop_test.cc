// SPDX-License-Identifier: Apache-2.0

// worker/trainer/training_loop_parity_test.cc shows that its calls are those of
// the C++ worker.

#include "client/training_loop.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/testing/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Time kNow = absl::InfinitePast();

class StoppedClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = SteadyNow();
};

class TrainingLoopTest : public ::testing::Test {
 protected:
  // Variables a [2] and b [3], and s [1], which is not trainable.
  TrainingLoopTest() {
    for (const auto& [name, size] : std::vector<std::pair<std::string, int>>{
             {"a", 2}, {"b", 3}, {"s", 1}}) {
      proto::Variable& variable = *declaration_.add_variables();
      variable.set_name(name);
      variable.add_shape(size);
      variable.set_trainable(name != "s");
    }
  }

  void StartSynchronous(uint32_t n, uint32_t m, uint64_t steps) {
    auto* synchronous =
        declaration_.mutable_consistency()->mutable_synchronous();
    synchronous->set_replicas_to_aggregate(n);
    synchronous->set_total_num_replicas(m);
    declaration_.set_total_steps(steps);
    Start();
  }

  void StartAsynchronous(uint32_t depth, uint64_t tickets) {
    declaration_.mutable_consistency()
        ->mutable_asynchronous()
        ->set_pipeline_depth(depth);
    declaration_.set_examples(proto::BY_TICKET);
    declaration_.set_total_steps(tickets);
    declaration_.set_total_tickets(tickets);
    Start();
  }

  void Start() {
    loop_.reset();
    cluster_ = std::make_unique<FakeCluster>(declaration_);
    options_.replica = 1;
    options_.enter = [this] {
      return cluster_->AwaitVariables(absl::InfiniteFuture());
    };
    MakeLoop();
  }

  void MakeLoop() {
    loop_ = std::make_unique<TrainingLoop>(cluster_.get(), &calls_, &clock_,
                                           options_);
  }

  TrainingLoop::Turn Next() {
    const auto turn = loop_->Next(absl::InfiniteFuture());
    EXPECT_TRUE(turn.ok()) << turn.status();
    return turn.ok() ? **turn : TrainingLoop::Turn();
  }
  bool NotYet() {
    const auto turn = loop_->Next(kNow);
    EXPECT_TRUE(turn.ok()) << turn.status();
    return turn.ok() && !turn->has_value();
  }
  absl::Status NextError() {
    return loop_->Next(absl::InfiniteFuture()).status();
  }
  void Push() {
    ASSERT_EQ(loop_->Add(0, a_), absl::OkStatus());
    ASSERT_EQ(loop_->Add(1, b_), absl::OkStatus());
    ASSERT_EQ(loop_->Contribute({8, 0.5, {}}), absl::OkStatus());
  }

  proto::Declaration declaration_;
  StoppedClock clock_;
  BackgroundCalls calls_;
  TrainingLoop::Options options_;
  std::unique_ptr<FakeCluster> cluster_;
  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5};
  std::unique_ptr<TrainingLoop> loop_;
};

TEST_F(TrainingLoopTest, TurnsByStepSayBatchSeatAndLossScale) {
  StartSynchronous(/*n=*/4, /*m=*/2, /*steps=*/2);
  std::vector<std::string> turns;
  for (;;) {
    const TrainingLoop::Turn turn = Next();
    if (turn.done) break;
    turns.push_back(absl::StrCat("batch ", turn.batch, ", step ",
                                 turn.step.value(), ", seat ", turn.seat, ", ",
                                 turn.loss_scale));
    EXPECT_EQ((*loop_->values())->version, turn.step);
    EXPECT_EQ((*loop_->values())->Of(1)[2], turn.step.value());
    Push();
  }
  EXPECT_THAT(
      turns,
      ElementsAre("batch 1, step 0, seat 1, 1", "batch 3, step 0, seat 3, 1",
                  "batch 5, step 1, seat 1, 2", "batch 7, step 1, seat 3, 2"));
  EXPECT_EQ(loop_->counts().accepted, 4);
  EXPECT_EQ(loop_->counts().verdict, proto::ACCEPTED);
  // The last version was pulled, so nothing more is read.
  EXPECT_EQ(cluster_->calls().back(), "await done");
  EXPECT_EQ((*loop_->values())->Of(0)[0], 2);
  EXPECT_TRUE(Next().done);
}

TEST_F(TrainingLoopTest, TurnsByTicketSayItsBatch) {
  StartAsynchronous(/*depth=*/1, /*tickets=*/9);
  cluster_->tickets = {3, 7};
  cluster_->pinned_versions = {GlobalStep(9)};
  EXPECT_EQ(Next().batch, 3);
  Push();
  const TrainingLoop::Turn turn = Next();
  EXPECT_EQ(turn.batch, 7);
  EXPECT_EQ(turn.loss_scale, 128);  // the ticket's: 2^7
  Push();
  EXPECT_TRUE(Next().done);
}

TEST_F(TrainingLoopTest, TheFinalValuesAreReadExactly) {
  StartAsynchronous(/*depth=*/1, /*tickets=*/1);
  Next();
  Push();
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->calls("pin"), ElementsAre("pin 1"));
  EXPECT_EQ((*loop_->values())->version, GlobalStep(1));
}

TEST_F(TrainingLoopTest, FinalValuesThatAreGoneEndNothing) {
  StartAsynchronous(/*depth=*/1, /*tickets=*/1);
  cluster_->errors["pin 1"] = absl::UnavailableError("ps 1: gone");
  Next();
  Push();
  EXPECT_TRUE(Next().done);
  EXPECT_TRUE(absl::IsUnavailable(loop_->values().status()));
  EXPECT_THAT(std::string(loop_->values().status().message()),
              AllOf(HasSubstr("from the ps (ps 1: gone)"),
                    HasSubstr("last checkpoint, if any, holds them")));
}

TEST_F(TrainingLoopTest, FinalValuesThatAreGoneComeFromTheLastCheckpoint) {
  std::vector<float> own(2, -1);
  options_.memory = {absl::MakeSpan(own), {}, {}};
  options_.last_checkpoint = [] {
    return std::make_shared<const Parameters>(
        GlobalStep(1), std::vector<std::vector<float>>{{7, 8}, {1, 2, 3}, {4}});
  };
  StartAsynchronous(/*depth=*/1, /*tickets=*/1);
  cluster_->errors["pin 1"] = absl::UnavailableError("ps 1: gone");
  Next();
  Push();
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(own, ElementsAre(7, 8));
  EXPECT_THAT((*loop_->values())->Of(1), ElementsAre(1, 2, 3));
  EXPECT_TRUE(loop_->from_checkpoint());

  options_.last_checkpoint = [] {
    return absl::DataLossError("block 3 does not fit its CRC32C");
  };
  StartAsynchronous(/*depth=*/1, /*tickets=*/1);
  cluster_->errors["pin 1"] = absl::UnavailableError("ps 1: gone");
  Next();
  Push();
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(std::string(loop_->values().status().message()),
              HasSubstr("(ps 1: gone); block 3"));
}

// ---- The end, by the caller's wish ----

TEST_F(TrainingLoopTest, OnceTheJobEndsTurnsArePassed) {
  bool finishing = false;
  options_.finishing = [&finishing] { return finishing; };
  for (const uint32_t depth : {1, 2}) {
    SCOPED_TRACE(depth);
    finishing = false;
    StartAsynchronous(depth, /*tickets=*/9);
    cluster_->tickets = {0, 1, 2};
    cluster_->pinned_versions = {GlobalStep(9)};
    EXPECT_EQ(Next().batch, 0);
    Push();
    EXPECT_EQ(Next().batch, 1);
    ASSERT_EQ(loop_->Add(0, a_), absl::OkStatus());
    EXPECT_TRUE(absl::IsFailedPrecondition(NextError()));
    finishing = true;
    EXPECT_TRUE(Next().done);
    EXPECT_EQ(cluster_->applications()[1].examples, 8);
    EXPECT_EQ(cluster_->applications()[2].examples, 0);
    EXPECT_EQ(cluster_->applications()[3].examples, 0);
    EXPECT_EQ(loop_->counts().not_finite, 0);
    EXPECT_EQ((*loop_->values())->version, GlobalStep(9));
  }
}

TEST_F(TrainingLoopTest, WhoComesAfterTheEndReadsTheFinalValues) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/9);
  cluster_->phase = proto::DONE;
  cluster_->pinned_versions = {GlobalStep(4)};  // it has ended early
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->calls("pull"), ElementsAre());
  EXPECT_EQ((*loop_->values())->version, GlobalStep(4));
}

// The memory of values is one of two sets, which stay where they are.
TEST_F(TrainingLoopTest, ValuesStayUntilTheNextTurn) {
  for (const bool asynchronous : {false, true}) {
    declaration_.clear_consistency();
    if (asynchronous) {
      StartAsynchronous(/*depth=*/1, /*tickets=*/6);
    } else {
      StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/6);
    }
    const float* sets[2] = {nullptr, nullptr};
    for (int i = 0; i < 6; ++i) {
      Next();
      const auto values = *loop_->values();
      const float* const data = values->Of(0).data();
      const float before = data[0];
      Push();
      EXPECT_EQ(data[0], before);
      const float*& set = sets[loop_->values_set()];
      if (set == nullptr) set = data;
      EXPECT_EQ(set, data);
    }
    EXPECT_NE(sets[0], sets[1]);
  }
}

TEST_F(TrainingLoopTest, ValuesThatAreKeptStayAsTheyAre) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  std::vector<std::shared_ptr<const Parameters>> kept;
  for (int i = 0; i < 4; ++i) {
    Next();
    kept.push_back(*loop_->values());
    Push();
  }
  EXPECT_TRUE(Next().done);
  loop_.reset();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(kept[i]->version, GlobalStep(i));
    EXPECT_THAT(kept[i]->Of(1), Each(i));
  }
}

TEST_F(TrainingLoopTest, AGradientMayBeWrittenToThePushsMemory) {
  for (const int depth : {1, 2}) {
    StartAsynchronous(depth, /*tickets=*/1);
    cluster_->memory = {{1, 3}};
    EXPECT_TRUE(loop_->Memory(1).empty());
    Next();
    EXPECT_TRUE(loop_->Memory(0).empty());
    const absl::Span<float> memory = loop_->Memory(1);
    ASSERT_EQ(memory.size(), 3);
    std::copy(b_.begin(), b_.end(), memory.begin());
    EXPECT_EQ(loop_->Add(0, a_), absl::OkStatus());
    EXPECT_EQ(loop_->Add(1, memory), absl::OkStatus());
    EXPECT_EQ(loop_->Contribute({8, 0.5, {}}), absl::OkStatus());
    EXPECT_TRUE(Next().done);
    EXPECT_EQ(cluster_->pushed(1)[1], b_);
  }
}

TEST_F(TrainingLoopTest, WritesValuesToTheCallersMemory) {
  for (const bool asynchronous : {false, true}) {
    std::vector<float> own(2, -1);
    options_.memory = {absl::MakeSpan(own), {}, {}};
    declaration_.clear_consistency();
    if (asynchronous) {
      StartAsynchronous(/*depth=*/1, /*tickets=*/4);
      cluster_->pinned_versions = {GlobalStep(4)};
    } else {
      StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
    }
    const float* other = nullptr;
    for (int i = 0; i < 4; ++i) {
      const TrainingLoop::Turn turn = Next();
      ASSERT_FALSE(turn.done);
      const auto values = *loop_->values();
      EXPECT_EQ(values->Of(0).data(), own.data());
      EXPECT_THAT(own, Each(turn.step.value()));
      EXPECT_THAT(values->Of(1), Each(turn.step.value()));
      EXPECT_NE(values->Of(1).data(),
                std::exchange(other, values->Of(1).data()));
      // As batch norm changes its statistics.
      own[0] = 100;
      Push();
    }
    EXPECT_TRUE(Next().done);
    EXPECT_THAT(own, Each(4));
    EXPECT_THAT((*loop_->values())->Of(1), Each(4));
    loop_.reset();
  }
}

TEST_F(TrainingLoopTest, WaitsInPortions) {
  StartSynchronous(/*n=*/4, /*m=*/2, /*steps=*/1);
  cluster_->delays = {{"await pull 0", 2},
                      {"await push #1", 1},
                      {"await verdict #2", 3},
                      {"await pull 1", 1}};
  EXPECT_TRUE(NotYet());
  EXPECT_TRUE(NotYet());
  Next();
  Push();
  EXPECT_EQ(cluster_->delays["await push #1"], 0);  // parts were sent at once
  cluster_->delays["await push #1"] = 1;
  EXPECT_TRUE(NotYet());
  Next();
  Push();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(NotYet()) << i;
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->calls("await pull"),
              ElementsAre("await pull 0", "await pull 1"));
}

TEST_F(TrainingLoopTest, AWaitEndsWithTheJobsTimeouts) {
  declaration_.mutable_timeouts()->set_step_seconds(10);
  declaration_.mutable_timeouts()->set_recovery_seconds(20);
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/1);
  cluster_->delays["await pull 0"] = 1000;
  const absl::Time begun = clock_.now;
  EXPECT_TRUE(NotYet());
  clock_.now += absl::Seconds(59);
  EXPECT_TRUE(NotYet());
  clock_.now += absl::Seconds(1);
  EXPECT_FALSE(NotYet());
  EXPECT_EQ(cluster_->deadline_of("await pull 0"), begun + absl::Seconds(60));
}

TEST_F(TrainingLoopTest, SaysAgainWhatItHandedOut) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->roll_backs["await verdict #1"].version = 0;
  EXPECT_FALSE(loop_->Current().has_value());
  EXPECT_FALSE(Next().rolled_back);
  ASSERT_TRUE(loop_->Current().has_value());
  EXPECT_EQ(loop_->Current()->batch, 1);
  EXPECT_EQ(loop_->Current()->number, 1);
  Push();
  EXPECT_FALSE(loop_->Current().has_value());
  EXPECT_TRUE(Next().rolled_back);
  EXPECT_TRUE(loop_->Current()->rolled_back);
  EXPECT_EQ(loop_->Current()->batch, 1);
  EXPECT_EQ(loop_->Current()->number, 2);
  EXPECT_FALSE(loop_->has_handed_in());
  EXPECT_EQ(loop_->Add(0, a_), absl::OkStatus());
  EXPECT_TRUE(loop_->has_handed_in());
  EXPECT_EQ(loop_->Restart(), absl::OkStatus());
  EXPECT_FALSE(loop_->has_handed_in());
  Push();
  EXPECT_FALSE(Next().rolled_back);
  EXPECT_FALSE(loop_->Current()->rolled_back);
  Push();
  EXPECT_FALSE(loop_->Current().has_value());
  EXPECT_TRUE(Next().done);
  EXPECT_TRUE(loop_->Current()->done);
  EXPECT_EQ(loop_->Current()->step, GlobalStep(2));
}

TEST_F(TrainingLoopTest, ATurnThatHasFailedIsNotSaidAgain) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->roll_backs["add 0"].version = 0;
  Next();
  EXPECT_EQ(loop_->Add(0, a_), absl::OkStatus());
  EXPECT_FALSE(loop_->Current().has_value());
  EXPECT_EQ(loop_->Restart(), absl::OkStatus());
  EXPECT_TRUE(Next().rolled_back);
}

TEST_F(TrainingLoopTest, OnlyWhatIsHandedInAfterARestartCounts) {
  declaration_.mutable_clipping()->set_global_norm(5);
  for (const int depth : {0, 1, 2}) {
    declaration_.clear_consistency();
    if (depth == 0) {
      StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/1);
    } else {
      StartAsynchronous(depth, /*tickets=*/1);
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(loop_->Restart()));
    const TrainingLoop::Turn turn = Next();
    std::vector<float> wrong = {std::numeric_limits<float>::infinity(), 0};
    std::vector<float> big = {1000, 0, 0};
    EXPECT_EQ(loop_->Add(1, big), absl::OkStatus());
    EXPECT_EQ(loop_->Add(0, wrong), absl::OkStatus());
    EXPECT_EQ(loop_->Restart(), absl::OkStatus());
    wrong = {7, 7};
    big = {7, 7, 7};
    EXPECT_EQ(loop_->Current()->batch, turn.batch);
    // Everything is to be handed in again.
    EXPECT_TRUE(absl::IsInvalidArgument(loop_->Contribute({8, 0.5, {}})));
    EXPECT_EQ(loop_->Add(1, std::vector<float>{0, 3, 0}), absl::OkStatus());
    EXPECT_EQ(loop_->Add(0, std::vector<float>{4, 0}), absl::OkStatus());
    EXPECT_EQ(loop_->Contribute({8, 0.5, {}}), absl::OkStatus());
    EXPECT_TRUE(absl::IsFailedPrecondition(loop_->Restart()));
    EXPECT_TRUE(Next().done);
    EXPECT_EQ(cluster_->pushed(1), (std::map<size_t, std::vector<float>>{
                                       {0, {4, 0}}, {1, {0, 3, 0}}}));
    EXPECT_EQ(loop_->counts().accepted, 1);
    EXPECT_EQ(loop_->counts().not_finite, 0);
    EXPECT_THAT(cluster_->calls("start push"), SizeIs(1));
    const Contribution contribution = depth == 0
                                          ? cluster_->contributions().front()
                                          : cluster_->applications().at(1);
    EXPECT_EQ(contribution.clip_factor, 1);
  }
}

TEST_F(TrainingLoopTest, VariablesWithoutElementsNeedNoGradient) {
  proto::Variable& empty = *declaration_.add_variables();
  empty.set_name("empty");
  empty.add_shape(0);
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/2);
  Next();
  Push();
  Next();
  EXPECT_EQ(loop_->Add(3, {}), absl::OkStatus());
  EXPECT_EQ(loop_->Add(0, a_), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(loop_->Contribute({8, 0.5, {}})));
  EXPECT_EQ(loop_->Add(1, b_), absl::OkStatus());
  EXPECT_EQ(loop_->Contribute({8, 0.5, {}}), absl::OkStatus());
  EXPECT_TRUE(Next().done);
}

TEST_F(TrainingLoopTest, ARollBackIsTold) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  cluster_->roll_backs["await verdict #3"].version = 1;
  std::vector<std::string> turns;
  for (;;) {
    const TrainingLoop::Turn turn = Next();
    if (turn.done) break;
    turns.push_back(absl::StrCat(turn.batch, turn.rolled_back ? " back" : ""));
    Push();
  }
  EXPECT_THAT(turns, ElementsAre("1", "3", "5", "3 back", "5", "7"));
  EXPECT_EQ(loop_->counts().roll_backs, 1);
}

TEST_F(TrainingLoopTest, ARollBackDuringATurnEndsItQuietly) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->roll_backs["add 1"].version = 0;
  Next();
  EXPECT_EQ(loop_->Add(0, a_), absl::OkStatus());
  EXPECT_EQ(loop_->Add(1, b_), absl::OkStatus());
  EXPECT_EQ(loop_->Contribute({8, 0.5, {}}), absl::OkStatus());
  EXPECT_TRUE(Next().rolled_back);
}

TEST_F(TrainingLoopTest, ANewGenerationIsEnteredInPortions) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/2);
  cluster_->roll_backs["await verdict #1"].version = 0;
  Next();
  Push();
  // On another thread: once, or sooner.
  while (NotYet()) {
  }
  Push();
  EXPECT_FALSE(Next().rolled_back);
}

TEST_F(TrainingLoopTest, AStrictLoopEndsWithARollBack) {
  options_.strict = true;
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  cluster_->roll_backs["await verdict #1"].version = 0;
  Next();
  Push();
  EXPECT_TRUE(absl::IsAborted(NextError()));
  EXPECT_TRUE(cluster_->rolled_back());
  EXPECT_TRUE(absl::IsAborted(NextError()));
  // The next loop continues from the restored values.
  loop_.reset();
  MakeLoop();
  const TrainingLoop::Turn turn = Next();
  EXPECT_TRUE(turn.rolled_back);
  EXPECT_EQ(turn.step, GlobalStep(0));
}

TEST_F(TrainingLoopTest, AStragglerOfAJobThatIsDoneIsDone) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  cluster_->errors["await verdict #1"] = absl::UnavailableError("ps 0: gone");
  Next();
  Push();
  cluster_->phase = proto::DONE;
  EXPECT_TRUE(Next().done);
}

// Early stopping: the step of the last push is not committed, so the version
// after it never arrives.
TEST_F(TrainingLoopTest, AJobThatEndsEarlyIsDoneWithItsNewestVersion) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  cluster_->errors["await verdict #3"] =
      absl::FailedPreconditionError("ps 0: the job is done at version 2");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Next().step, GlobalStep(i));
    Push();
  }
  cluster_->phase = proto::DONE;
  const TrainingLoop::Turn turn = Next();
  EXPECT_TRUE(turn.done);
  EXPECT_EQ(turn.step, GlobalStep(2));
  EXPECT_THAT(cluster_->calls("pin"), ElementsAre("pin 2"));
  EXPECT_THAT((*loop_->values())->Of(0), Each(2));
  EXPECT_EQ(loop_->counts().accepted, 2);
  EXPECT_TRUE(Next().done);
}

TEST_F(TrainingLoopTest, AJobWhoseTicketsEndEarlyIsDoneWithItsNewestVersion) {
  for (const bool asynchronous : {false, true}) {
    declaration_.clear_consistency();
    if (asynchronous) {
      StartAsynchronous(/*depth=*/2, /*tickets=*/9);
    } else {
      declaration_.set_examples(proto::BY_TICKET);
      StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/9);
    }
    cluster_->tickets = {0, 1};
    cluster_->pinned_versions = {GlobalStep(5), GlobalStep(0), GlobalStep(5)};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(Next().batch, i);
      Push();
    }
    const TrainingLoop::Turn turn = Next();
    EXPECT_TRUE(turn.done);
    EXPECT_EQ(turn.step, GlobalStep(5));
    EXPECT_EQ((*loop_->values())->version, GlobalStep(5));
    EXPECT_EQ(cluster_->calls("await done").size(), 1);
  }
}

TEST_F(TrainingLoopTest, FinalValuesOfDifferentVersionsAreNone) {
  StartAsynchronous(/*depth=*/1, /*tickets=*/9);
  cluster_->tickets = {0};
  cluster_->pinned_versions = {GlobalStep(5), GlobalStep(4)};
  Next();
  Push();
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(std::string(loop_->values().status().message()),
              HasSubstr("the ps are at different versions, the least at 4"));
}

TEST_F(TrainingLoopTest, AJobThatIsStoppedEndsItWithTheReason) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  cluster_->reason = "the job was stopped at step 0";
  const absl::Status stopped = absl::AbortedError(cluster_->reason);
  cluster_->errors["await verdict #1"] = stopped;
  // A ps that had lost its state meanwhile changes nothing.
  cluster_->roll_backs["await verdict #1"].version = 0;
  Next();
  Push();
  cluster_->phase = proto::STOPPED;
  EXPECT_EQ(NextError(), stopped);
  EXPECT_EQ(NextError(), stopped);
  EXPECT_EQ(cluster_->calls("await done").size(), 0);
}

// What the loop waits for will never arrive.
TEST_F(TrainingLoopTest, OfAJobThatIsStoppingItWaitsForTheEnd) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  cluster_->errors["await verdict #1"] =
      absl::DeadlineExceededError("too long");
  cluster_->errors["await done"] = absl::AbortedError("the job was stopped");
  Next();
  Push();
  cluster_->phase = proto::STOPPING;
  cluster_->delays["await done"] = 1;
  EXPECT_TRUE(absl::IsAborted(NextError()));
  EXPECT_EQ(cluster_->calls("await done").size(), 1);
}

TEST_F(TrainingLoopTest, AnErrorEndsIt) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  const absl::Status error = absl::UnavailableError("ps 0: gone");
  cluster_->errors["await verdict #1"] = error;
  Next();
  Push();
  EXPECT_EQ(NextError(), error);
  EXPECT_EQ(NextError(), error);
}

TEST_F(TrainingLoopTest, AJobThatWasFinishedBeforeHasNoTurns) {
  options_.finished_before = true;
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/4);
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->calls(), ElementsAre());
  EXPECT_THAT(std::string(loop_->values().status().message()),
              HasSubstr("already finished"));
  loop_.reset();

  options_.last_checkpoint = [] {
    return std::make_shared<const Parameters>(
        GlobalStep(4), std::vector<std::vector<float>>{{7, 8}, {1, 2, 3}, {4}});
  };
  std::vector<float> own(2, -1);
  options_.memory = {absl::MakeSpan(own), {}, {}};
  MakeLoop();
  const TrainingLoop::Turn turn = Next();
  EXPECT_TRUE(turn.done);
  EXPECT_EQ(turn.step, GlobalStep(4));
  EXPECT_THAT(own, ElementsAre(7, 8));
  EXPECT_THAT((*loop_->ValuesAtFixedPlace())[1], ElementsAre(1, 2, 3));
}

TEST_F(TrainingLoopTest, MisuseChangesNothing) {
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/1);
  EXPECT_TRUE(absl::IsFailedPrecondition(loop_->Add(0, a_)));
  EXPECT_TRUE(absl::IsFailedPrecondition(loop_->Contribute({8, 0, {}})));
  Next();
  EXPECT_THAT(std::string(NextError().message()),
              HasSubstr("batch 1 was not contributed"));
  EXPECT_EQ(loop_->Add(0, a_), absl::OkStatus());
  const absl::Status missing = loop_->Contribute({8, 0, {}});
  EXPECT_TRUE(absl::IsInvalidArgument(missing));
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("of 1 of 2 trainable variables were not handed in; the "
                        "first is of \"b\""));
  for (const float factor : {-0.5f, 1.5f, std::nanf("")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(loop_->Contribute({8, 0, factor})));
  }
  EXPECT_EQ(loop_->Add(1, b_), absl::OkStatus());
  EXPECT_EQ(loop_->Contribute({8, 0, {}}), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(loop_->Contribute({8, 0, {}})));
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 8 examples"));
}

// The meter's clock is moved by hand: while the caller has the turn, and
// between two calls of Next that wait for the same verdict.
TEST_F(TrainingLoopTest, TellsWhatTimeGoesInto) {
  StoppedClock clock;
  PhaseMeter meter(&clock);
  options_.meter = &meter;
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/1);
  cluster_->delays["await verdict #1"] = 2;
  Next();
  clock.now += absl::Seconds(3);
  EXPECT_EQ(meter.Look()->phases().compute(), 3);
  Push();
  clock.now += absl::Seconds(1);  // neither
  for (const double waited : {0, 5}) {
    ASSERT_EQ(loop_->Next(kNow)->has_value(), false);
    EXPECT_EQ(meter.Look()->waiting_for(), "verdict");
    EXPECT_EQ(meter.Look()->waiting_seconds(), waited);
    clock.now += absl::Seconds(5);
  }
  EXPECT_TRUE(Next().done);
  clock.now += absl::Seconds(1);  // training has ended
  const auto report = meter.Look();
  EXPECT_EQ(report->phases().compute(), 3);
  EXPECT_EQ(report->phases().verdict(), 10);
  EXPECT_EQ(report->phases().version(), 0);
  EXPECT_EQ(report->steps(), 1);
  EXPECT_EQ(report->waiting_for(), "");
  loop_.reset();
}

TEST_F(TrainingLoopTest, TheCallerTellsOfItsInput) {
  StoppedClock clock;
  PhaseMeter meter(&clock);
  options_.meter = &meter;
  StartSynchronous(/*n=*/2, /*m=*/2, /*steps=*/2);
  loop_->WaitsForInput(true);  // before it trains
  clock.now += absl::Seconds(100);
  Next();
  EXPECT_EQ(meter.Look()->waiting_for(), "");
  clock.now += absl::Seconds(1);
  loop_->WaitsForInput(true);
  clock.now += absl::Seconds(2);
  EXPECT_EQ(meter.Look()->waiting_for(), "input");
  EXPECT_EQ(meter.Look()->waiting_seconds(), 2);
  loop_->WaitsForInput(false);
  EXPECT_EQ(meter.Look()->waiting_for(), "");
  clock.now += absl::Seconds(4);
  Push();
  // For the next turn, before it is requested.
  loop_->WaitsForInput(true);
  clock.now += absl::Seconds(8);
  loop_->WaitsForInput(false);
  clock.now += absl::Seconds(16);  // none of the phases
  Next();
  // The push ends the wait for input.
  loop_->WaitsForInput(true);
  clock.now += absl::Seconds(32);
  Push();
  EXPECT_TRUE(Next().done);
  loop_->WaitsForInput(true);  // after it
  clock.now += absl::Seconds(100);
  const auto report = meter.Look();
  EXPECT_EQ(report->waiting_for(), "");
  EXPECT_EQ(report->phases().input(), 2 + 8 + 32);
  EXPECT_EQ(report->phases().compute(), 1 + 4);
  loop_.reset();
}

TEST_F(TrainingLoopTest, ATurnMayBePassed) {
  StartSynchronous(/*n=*/4, /*m=*/2, /*steps=*/1);
  Next();
  EXPECT_EQ(loop_->Contribute({}), absl::OkStatus());
  Next();
  EXPECT_EQ(loop_->Add(0, a_), absl::OkStatus());
  EXPECT_EQ(loop_->Contribute({}), absl::OkStatus());
  EXPECT_TRUE(Next().done);
  EXPECT_THAT(cluster_->calls("contribute"),
              ElementsAre("contribute #1: step 0, seat 1, 0 examples",
                          "contribute #2: step 0, seat 3, 0 examples"));
  EXPECT_EQ(loop_->counts().not_finite, 0);
}

TEST_F(TrainingLoopTest, TheCallersClipFactorGoesBeforeTheDeclared) {
  declaration_.mutable_clipping()->set_global_norm(1);
  StartSynchronous(/*n=*/4, /*m=*/2, /*steps=*/1);
  Next();
  Push();
  Next();
  ASSERT_EQ(loop_->Add(0, a_), absl::OkStatus());
  ASSERT_EQ(loop_->Add(1, b_), absl::OkStatus());
  ASSERT_EQ(loop_->Contribute({8, 0.5, 0.75f}), absl::OkStatus());
  EXPECT_TRUE(Next().done);
  // 1 + 4 + 9 + 16 + 25.
  EXPECT_EQ(cluster_->contributions()[0].clip_factor,
            static_cast<float>(1 / std::sqrt(55.0)));
  EXPECT_EQ(cluster_->contributions()[1].clip_factor, 0.75f);
}

// The gradient's memory belongs to the caller again with the next turn.
TEST_F(TrainingLoopTest, APipelinedGradientIsCopied) {
  StartAsynchronous(/*depth=*/3, /*tickets=*/7);
  std::vector<float> a = {1, 2};
  for (;;) {
    const TrainingLoop::Turn turn = Next();
    if (turn.done) break;
    a[0] += 1;
    ASSERT_EQ(loop_->Add(0, a), absl::OkStatus());
    ASSERT_EQ(loop_->Add(1, b_), absl::OkStatus());
    ASSERT_EQ(loop_->Contribute({8, 0.5, {}}), absl::OkStatus());
  }
  EXPECT_THAT(cluster_->overwritten(), ElementsAre());
  EXPECT_EQ(cluster_->pushed(7)[0][0], 8);
}

}  // namespace
}  // namespace holdfast
