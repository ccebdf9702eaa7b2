// SPDX-License-Identifier: Apache-2.0

// A lost task ends the job on all tasks, with the lost task's name, and no task
// waits forever.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/cluster.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/test_cluster.h"
#include "tests/integration/training.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

// Two ps and two workers. Worker 0 has offered its push to step 0 and waits for
// the verdict and for the parameters of step 1; worker 1 is a bare session.
class LostTaskTest : public testing::Test {
 protected:
  LostTaskTest() : cluster_(MakeLoopbackCluster(2, 2), kShortLease) {}

  void SetUp() override {
    auto worker = ConnectWorker(cluster_.spec(), 0);
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);

    Session::Options options;
    options.task = {kWorkerJob, 1};
    options.queue = &queue_;
    options.coordinator = cluster_.address(0);
    options.job_digest = "job";
    options.data_digest = "data";
    options.num_ps = 2;
    options.num_workers = 2;
    options.deadline = Soon();
    auto other = Session::Open(options);
    ASSERT_TRUE(other.ok()) << other.status();
    other_ = *std::move(other);

    ASSERT_EQ(worker_->Declare(MakeDeclaration(5), Soon()), absl::OkStatus());
    ASSERT_EQ(worker_->AwaitVariables(Soon()), absl::OkStatus());
    auto push = PushAndOffer(worker_.get(), GlobalStep(0), 0, Soon());
    ASSERT_TRUE(push.ok()) << push.status();
    push_ = *std::move(push);
    pull_ = worker_->StartPull(GlobalStep(1), &parameters_);
  }

  // Expects every wait of worker 0 to end with an error that contains `name`.
  void ExpectWorkerIsTold(const std::string& name) {
    const absl::StatusOr<Cluster::Outcome> outcome = push_->Await(Soon());
    if (outcome.ok()) {
      EXPECT_EQ(outcome->verdict, proto::ABORTED);
    } else {
      EXPECT_THAT(outcome.status().ToString(), HasSubstr(name));
    }
    EXPECT_THAT(pull_->Await(Soon()).ToString(), HasSubstr(name));
    Parameters again;
    EXPECT_THAT(
        worker_->StartPull(GlobalStep(0), &again)->Await(Soon()).ToString(),
        HasSubstr(name));
  }

  void ExpectPsEnds(uint32_t ps, absl::StatusCode code,
                    const std::string& name) {
    const absl::Status status = cluster_.Wait(ps);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }

  CallQueue queue_;
  const std::unique_ptr<CallThreads> poller_ =
      *CallThreads::Start(&queue_, 1, "poller");
  TestCluster cluster_;
  std::unique_ptr<Cluster> worker_;
  std::unique_ptr<Session> other_;
  Parameters parameters_;
  std::unique_ptr<Cluster::Push> push_;
  std::unique_ptr<Cluster::Pull> pull_;
};

TEST_F(LostTaskTest, Worker) {
  other_.reset();  // Without notice.
  ExpectWorkerIsTold("/job:worker/task:1");
  ExpectPsEnds(0, absl::StatusCode::kAborted, "/job:worker/task:1");
  ExpectPsEnds(1, absl::StatusCode::kAborted, "/job:worker/task:1");
}

TEST_F(LostTaskTest, WorkerThatLeavesWithAnError) {
  EXPECT_EQ(other_->Close("the disk is full", Soon()), absl::OkStatus());
  for (const char* part : {"/job:worker/task:1", "the disk is full"}) {
    ExpectWorkerIsTold(part);
  }
  ExpectPsEnds(0, absl::StatusCode::kAborted, "the disk is full");
  ExpectPsEnds(1, absl::StatusCode::kAborted, "the disk is full");
}

TEST_F(LostTaskTest, Ps) {
  cluster_.Kill(1);
  ExpectWorkerIsTold("/job:ps/task:1");
  ExpectPsEnds(0, absl::StatusCode::kAborted, "/job:ps/task:1");
}

TEST_F(LostTaskTest, PsWithTheCoordinator) {
  cluster_.Kill(0);
  ExpectPsEnds(1, absl::StatusCode::kUnavailable, "/job:ps/task:0");
  ExpectWorkerIsTold("/job:ps/task:0");
  // The ps that gave up has not reported the failure to its parked calls.
  EXPECT_NE(worker_->state().phase(), proto::FAILED);
}

TEST_F(LostTaskTest, PsIsToldToStop) {
  cluster_.ps(1).Stop("ps 1 was told to stop");
  ExpectPsEnds(1, absl::StatusCode::kAborted, "ps 1 was told to stop");
  ExpectWorkerIsTold("ps 1 was told to stop");
  ExpectPsEnds(0, absl::StatusCode::kAborted, "ps 1 was told to stop");
}

TEST_F(LostTaskTest, PsWithTheCoordinatorIsToldToStop) {
  cluster_.ps(0).Stop("ps 0 was told to stop");
  ExpectWorkerIsTold("ps 0 was told to stop");
  ExpectPsEnds(0, absl::StatusCode::kAborted, "ps 0 was told to stop");
  ExpectPsEnds(1, absl::StatusCode::kAborted, "ps 0 was told to stop");
}

}  // namespace
}  // namespace holdfast
