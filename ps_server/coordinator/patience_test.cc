// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/patience.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr absl::Duration kStart = absl::Seconds(100);
constexpr absl::Duration kStep = absl::Seconds(200);
constexpr absl::Duration kRecovery = absl::Seconds(300);
constexpr absl::Duration kMoment = absl::Milliseconds(1);

class SilentShards : public ShardLinks {
 public:
  void SetAddress(uint32_t, const std::string&) override {}
  void Send(uint32_t, const ShardRequest&, Reply<ShardResponse>) override {}
};

// A job of one ps and two workers without a coordinator: the test sets up its
// parts. Records failures.
class PatienceTest : public ::testing::Test,
                     private Members::Owner,
                     private Director {
 protected:
  static CoordinatorOptions MakeOptions() {
    CoordinatorOptions options;
    options.num_workers = 2;
    options.lease = kLease;
    options.start_timeout = kStart;
    options.step_timeout = kStep;
    options.recovery_timeout = kRecovery;
    return options;
  }

  const proto::JobState& state() const override { return job_.state; }
  Generation generation() const override { return job_.generation; }
  bool beginning() const override { return false; }
  uint64_t durable_step() const override { return 0; }
  absl::Status CheckDigests(const TaskId&,
                            const proto::RegisterRequest&) override {
    return absl::OkStatus();
  }
  void OnReplaced(const TaskId&) override {}
  void OnJoined(const TaskId&, bool) override {}
  void OnBack(const TaskId&) override { patience_.OnBack(); }
  void OnLost(const TaskId&) override {}
  void OnTold(const WorkerLife&) override {}
  bool HearTrace(const proto::RenewLeaseRequest&) override { return false; }
  std::optional<proto::TraceOrder> trace_order() const override {
    return std::nullopt;
  }
  void FailUnlessFinishing(const std::string& reason) override {
    failures_.push_back(reason);
  }
  void FailNow(const std::string& reason) override {
    failures_.push_back(absl::StrCat("now: ", reason));
  }
  std::string WaitingFor() const override { return "Godot"; }
  void OnGenerationOver() override {}
  void OnGenerationBegun(const proto::Position&) override {}
  void OnValuesWanted() override {}
  void OnRestored(const proto::Manifest&) override {}
  void OnStepClosed() override {}
  void OnFinished() override {}
  void OnSavedToStop(const proto::Position&) override {}

  void Join(uint32_t worker) {
    proto::RegisterRequest request;
    request.mutable_sender()->mutable_task()->set_job(kWorkerJob);
    request.mutable_sender()->mutable_task()->set_index(worker);
    request.set_nonce(worker + 1);
    request.set_protocol_version(kProtocolVersion);
    request.set_process(absl::StrCat("host", worker));
    request.set_num_ps(1);
    request.set_num_workers(2);
    const Outbox::Event event(&job_.outbox);
    job_.members.Register(request, [](const auto& response) {
      EXPECT_TRUE(response.ok()) << response.status();
    });
  }
  void Renew(uint32_t worker) {
    proto::RenewLeaseRequest request;
    request.mutable_sender()->mutable_task()->set_job(kWorkerJob);
    request.mutable_sender()->mutable_task()->set_index(worker);
    request.mutable_sender()->set_incarnation(1);
    const Outbox::Event event(&job_.outbox);
    job_.members.RenewLease(request, [](const auto&) {});
  }
  // The worker's lease has expired.
  void Lose(uint32_t worker) {
    for (int i = 0; i < 4; ++i) {
      clock_.Advance(kLease / 4);
      for (uint32_t other = 0; other < 2; ++other) {
        if (other != worker && job_.members.IsLive({kWorkerJob, other})) {
          Renew(other);
        }
      }
      job_.members.JudgeLeases();
    }
    ASSERT_FALSE(job_.members.IsLive({kWorkerJob, worker}));
  }
  // Both workers have joined, and step 0 is open.
  void Train(bool continues = false, bool asynchronous = false) {
    proto::Declaration declaration;
    declaration.set_total_steps(5);
    declaration.set_total_tickets(5);
    if (asynchronous) {
      declaration.mutable_consistency()->mutable_asynchronous();
    } else {
      auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
      mode.set_replicas_to_aggregate(2);
      mode.set_total_num_replicas(2);
    }
    if (continues) {
      declaration.mutable_lost_workers()->set_policy(
          proto::LostWorkers::CONTINUE);
      declaration.mutable_lost_workers()->set_min_replicas(1);
    }
    ASSERT_TRUE(job_.declared.Set(declaration).ok());
    for (const uint32_t worker : {0, 1}) Join(worker);
    job_.state.set_phase(proto::TRAINING);
    job_.created = true;
    if (asynchronous) {
      job_.tickets.Begin(proto::Position());
      job_.progress.OnMoved(clock_.Now());
    } else {
      job_.OpenStepAt(GlobalStep(0));
    }
    job_.progress.OnTrainingBegun(clock_.Now());
  }
  // Lets this much time pass, and returns the new failures.
  std::vector<std::string> After(absl::Duration time) {
    clock_.Advance(time);
    failures_.clear();
    patience_.Judge();
    return failures_;
  }

  FakeClock clock_;
  SilentShards shards_;
  std::vector<std::string> failures_;
  Job job_{MakeOptions(), &clock_, &shards_, nullptr, [] {}, this, this};
  Restore restore_{&job_};
  Save save_{&job_};
  End end_{&job_};
  Patience patience_{&job_, &restore_, &save_, &end_};
};

TEST_F(PatienceTest, TheStart) {
  EXPECT_THAT(After(kStart), IsEmpty());
  EXPECT_THAT(
      After(kMoment),
      ElementsAre("the job did not start within 1m40s: waited for Godot"));
}

// The limit counts from when the step was opened, or could first be made.
TEST_F(PatienceTest, AStep) {
  Train();
  EXPECT_THAT(After(kStep), IsEmpty());
  job_.OpenStepAt(GlobalStep(1));
  EXPECT_THAT(After(kStep), IsEmpty());
  EXPECT_THAT(After(kMoment),
              ElementsAre("step 1 was open for 3m20s: waited for Godot"));
}

TEST_F(PatienceTest, APushWhereThereAreNoSteps) {
  Train(/*continues=*/false, /*asynchronous=*/true);
  EXPECT_THAT(After(kStep), IsEmpty());
  job_.progress.OnMoved(clock_.Now());
  EXPECT_THAT(After(kStep), IsEmpty());
  EXPECT_THAT(After(kMoment),
              ElementsAre("no push came through for 3m20s: waited for Godot"));
}

// While a worker is lost, the step's limit does not run.
TEST_F(PatienceTest, WhoIsLostHasTimeToComeBack) {
  Train();
  Lose(1);
  EXPECT_THAT(After(kRecovery), IsEmpty());
  EXPECT_THAT(After(kMoment),
              ElementsAre("/job:worker/task:1 (host1, lost): nothing was heard "
                          "for 5m10.001s, and no replacement joined"));
  Renew(1);
  EXPECT_THAT(After(kStep), IsEmpty()) << "it began anew with the return";
  EXPECT_THAT(After(kMoment),
              ElementsAre("step 0 was open for 3m20s: waited for Godot"));
}

TEST_F(PatienceTest, WhoIsLostIsNotMissedWhereEnoughAreLeft) {
  Train(/*continues=*/true);
  Lose(1);
  EXPECT_THAT(After(kStep - kLease), IsEmpty());
  EXPECT_THAT(After(kMoment),
              ElementsAre("step 0 was open for 3m20s: waited for Godot"));
}

// Not the first one.
TEST_F(PatienceTest, TheLossThatLeftTooFewCounts) {
  Train(/*continues=*/true);
  Lose(1);
  Lose(0);
  EXPECT_THAT(After(kRecovery), IsEmpty());
  EXPECT_EQ(After(kMoment).size(), 1u);
}

TEST_F(PatienceTest, WorkersOfAJobThatIsDoneAreGivenUp) {
  Train();
  job_.state.set_phase(proto::DONE);
  end_.OnDone();
  EXPECT_THAT(After(kStep), IsEmpty());
  EXPECT_EQ(job_.members.num_live_workers(), 2u);
  EXPECT_THAT(After(kMoment), IsEmpty());
  EXPECT_EQ(job_.members.num_live_workers(), 0u);
}

// The coordinator's own pause is not the tasks' fault: it may not have heard
// from them.
TEST_F(PatienceTest, NobodyIsJudgedAfterALateTick) {
  Train();
  clock_.Advance(2 * kStep);
  job_.members.JudgeLeases();
  EXPECT_THAT(After(kLease - kMoment), IsEmpty());
  EXPECT_EQ(After(kMoment).size(), 1u);
}

}  // namespace
}  // namespace holdfast
