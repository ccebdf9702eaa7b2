// SPDX-License-Identifier: Apache-2.0

// Asynchronous jobs and jobs by ticket with real daemons: every ticket is spent
// once, whichever task dies.

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/process/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::google::protobuf::Struct;
using ::testing::HasSubstr;

// Examples in each push of the small job.
constexpr int kBatch = 16;

SmallJob Asynchronous(const std::string& mode = "") {
  SmallJob job;
  job.steps = 80;
  // Half of the synchronous job's rate: each push moves the model by itself.
  job.optimizer = "learning_rate: 0.1 momentum { momentum: 0.9 }";
  job.consistency = absl::StrCat("asynchronous { ", mode, " }");
  return job;
}

// The sum of a number over a list of the result.
double SumOf(const Struct& result, const std::string& list,
             const std::string& name) {
  double sum = 0;
  for (const auto& entry : result.fields().at(list).list_value().values()) {
    sum += NumberIn(entry.struct_value(), name);
  }
  return sum;
}

class AsynchronousTest : public ::testing::Test {
 protected:
  AsynchronousTest() : folder_(FreshFolder()) { WriteExamples(folder_); }

  // Runs the job with `holdfast local` and returns its result.
  Struct Train(const SmallJob& job, std::vector<std::string> flags = {}) {
    const std::string run_dir = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> args = {
        kHoldfast, "local", absl::StrCat("--job=", WriteJob(folder_, job)),
        absl::StrCat("--run_dir=", run_dir)};
    args.insert(args.end(), flags.begin(), flags.end());
    Program program(args);
    EXPECT_EQ(program.Wait(), 0) << program.output();
    output_ = program.output();
    return ReadResult(run_dir + "/result.json");
  }

  // Every push counted once, and its verdict was reported.
  void ExpectAllSpent(const Struct& result, int tickets) {
    EXPECT_EQ(NumberIn(result, "global_step"), tickets);
    EXPECT_EQ(NumberIn(result, "examples"), tickets * kBatch);
    const Struct& pushes = result.fields().at("pushes").struct_value();
    EXPECT_EQ(NumberIn(pushes, "accepted"), tickets);
    EXPECT_EQ(SumOf(result, "by_worker", "pushes"), tickets);
    EXPECT_EQ(SumOf(result, "by_worker", "examples"), tickets * kBatch);
    const Struct& staleness = result.fields().at("staleness").struct_value();
    EXPECT_EQ(SumOf(staleness, "counts", "pushes"), tickets);
  }

  const std::string folder_;
  int runs_ = 0;
  std::string output_;
};

TEST_F(AsynchronousTest, EveryTicketIsSpentOnce) {
  const Struct result = Train(Asynchronous(), {"--ps=2", "--workers=3"});
  ExpectAllSpent(result, 80);
  EXPECT_EQ(result.fields().at("by_worker").list_value().values_size(), 3);
  EXPECT_GT(NumberIn(result, "test_accuracy"), 0.9);
  EXPECT_EQ(StringIn(result.fields().at("consistency").struct_value(), "mode"),
            "asynchronous");
}

// The first pushes show that the loss scale is too great.
TEST_F(AsynchronousTest, Float16OverflowsAndGoesOn) {
  SmallJob job = Asynchronous();
  job.more += "precision { float16 { loss_scale { initial: 16777216 } } }";
  const Struct result = Train(job, {"--ps=2", "--workers=2"});
  const Struct& pushes = result.fields().at("pushes").struct_value();
  EXPECT_EQ(NumberIn(pushes, "accepted"), 80);
  EXPECT_GT(NumberIn(pushes, "not_finite"), 1);
  EXPECT_LT(NumberIn(pushes, "not_finite"), 30);
  EXPECT_EQ(NumberIn(result, "examples"),
            kBatch * (80 - NumberIn(pushes, "not_finite")));
  EXPECT_GT(NumberIn(result, "test_accuracy"), 0.8);
}

TEST_F(AsynchronousTest, OneWorkerIsNeverStale) {
  const Struct result = Train(Asynchronous(), {"--ps=2", "--workers=1"});
  ExpectAllSpent(result, 80);
  const Struct& staleness = result.fields().at("staleness").struct_value();
  EXPECT_EQ(NumberIn(staleness, "max"), 0);
}

TEST_F(AsynchronousTest, BoundedAndPipelined) {
  ExpectAllSpent(Train(Asynchronous("staleness_bound: 0"), {"--workers=2"}),
                 80);
  ExpectAllSpent(Train(Asynchronous("staleness_bound: 2 pipeline_depth: 3"),
                       {"--ps=2", "--workers=3",
                        absl::StrCat("--worker_binary=", kSlowWorker),
                        "--worker_flags=--slow_step_ms_max=10"}),
                 80);
}

// 200 examples in batches of 48: an epoch has four full batches and one of 8.
TEST_F(AsynchronousTest, EpochsEndWithAShortBatch) {
  const std::string path = WriteJob(folder_, Asynchronous());
  std::string text = ReadText(path);
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
  };
  replace("steps: 80", "epochs: 2");
  replace("batch_size: 16", "batch_size: 48");
  replace("  test {", "  short_last_batch: true\n  test {");
  WriteText(path, text);
  Program program({kHoldfast, "local", "--job=" + path,
                   absl::StrCat("--run_dir=", folder_, "/run")});
  EXPECT_EQ(program.Wait(), 0) << program.output();
  const Struct result = ReadResult(folder_ + "/run/result.json");
  EXPECT_EQ(NumberIn(result, "global_step"), 10);
  EXPECT_EQ(NumberIn(result, "examples"), 400);
}

// N = 1, M = 2: the late worker's tickets are handed out again.
TEST_F(AsynchronousTest, SynchronousByTicketLosesNoExample) {
  SmallJob job;
  job.steps = 60;
  job.replicas_to_aggregate = 1;
  job.more = "examples: BY_TICKET\n";
  const Struct result =
      Train(job, {absl::StrCat("--worker_binary=", kSlowWorker),
                  "--worker_flags=--slow_step_ms_max=5"});
  EXPECT_EQ(NumberIn(result, "global_step"), 60);
  EXPECT_EQ(NumberIn(result, "examples"), 60 * kBatch);
  const Struct& pushes = result.fields().at("pushes").struct_value();
  EXPECT_EQ(NumberIn(pushes, "accepted"), 60);
  EXPECT_GT(NumberIn(pushes, "stale"), 0);
}

// The minimum memory limit: the ps states what the job needs, and exactly that
// is enough for all workers at once with three pushes each under way.
TEST_F(AsynchronousTest, TheLeastMemoryIsEnough) {
  const SmallJob job = Asynchronous("pipeline_depth: 3");
  const std::string path = WriteJob(folder_, job);
  Program refused({kHoldfast, "local", "--job=" + path, "--ps=1", "--workers=4",
                   "--ps_flags=--memory_limit=1000",
                   absl::StrCat("--run_dir=", folder_, "/refused")});
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(refused.output(), HasSubstr("/job:ps/task:0"));
  EXPECT_THAT(refused.output(), HasSubstr("--memory_limit"));
  EXPECT_THAT(refused.output(), HasSubstr("values"));

  // 64 x 16 + 16 + 16 x 4 + 4 = 1108 elements of 4 bytes: values, momentum,
  // next version, one held for readers, values and momentum of a checkpoint,
  // and a push of each of 4 workers.
  const int64_t needed = 1108 * 4 * (4 + 2 + 4);
  ExpectAllSpent(
      Train(job, {"--ps=1", "--workers=4",
                  absl::StrCat("--ps_flags=--memory_limit=", needed)}),
      80);
  Program short_of_it({kHoldfast, "local", "--job=" + path, "--ps=1",
                       "--workers=4",
                       absl::StrCat("--ps_flags=--memory_limit=", needed - 1),
                       absl::StrCat("--run_dir=", folder_, "/short")});
  EXPECT_EQ(short_of_it.Wait(), 1);
}

// Starts the daemons one by one, so that a worker can die in the middle of the
// job.
class LostWorkerTest : public AsynchronousTest {
 protected:
  LostWorkerTest() {
    const std::vector<uint16_t> ports = TakePorts(4);
    ps_hosts_ = absl::StrCat("--ps_hosts=localhost:", ports[0],
                             ",localhost:", ports[1]);
    worker_hosts_ = absl::StrCat("--worker_hosts=localhost:", ports[2],
                                 ",localhost:", ports[3]);
    SmallJob job = Asynchronous();
    job.steps = 400;
    job_ = "--job=" + WriteJob(folder_, job);
    for (const char* index : {"--task_index=0", "--task_index=1"}) {
      ps_.push_back(std::make_unique<Program>(std::vector<std::string>{
          kPsServer, ps_hosts_, worker_hosts_, index, "--lease=1s"}));
    }
  }

  std::unique_ptr<Program> StartWorker(const std::string& index) {
    // 400 pushes that take some milliseconds each outlast the test.
    return std::make_unique<Program>(std::vector<std::string>{
        kSlowWorker, job_, ps_hosts_, worker_hosts_, "--task_index=" + index,
        "--slow_step_ms_max=20",
        absl::StrCat("--result_file=", folder_, "/result.json")});
  }

  void ExpectTheJobIsDone() {
    for (const auto& ps : ps_) {
      EXPECT_EQ(ps->Wait(), 0) << ps->output();
    }
    ExpectAllSpent(ReadResult(folder_ + "/result.json"), 400);
  }

  std::string ps_hosts_, worker_hosts_, job_;
  std::vector<std::unique_ptr<Program>> ps_;
};

TEST_F(LostWorkerTest, TheOthersGoOn) {
  auto chief = StartWorker("0");
  auto other = StartWorker("1");
  EXPECT_TRUE(other->ReadUntil("training to step")) << other->output();
  other->Signal(SIGKILL);
  EXPECT_EQ(chief->Wait(), 0) << chief->output();
  ExpectTheJobIsDone();
}

TEST_F(LostWorkerTest, AnotherTakesItsPlace) {
  auto chief = StartWorker("0");
  auto lost = StartWorker("1");
  EXPECT_TRUE(lost->ReadUntil("training to step")) << lost->output();
  lost->Signal(SIGKILL);
  // Until the lease ends, the place is taken.
  EXPECT_TRUE(ps_[0]->ReadUntil("is fenced")) << ps_[0]->output();
  auto next = StartWorker("1");
  EXPECT_TRUE(next->ReadUntil("training to step")) << next->output();
  EXPECT_EQ(next->Wait(), 0) << next->output();
  EXPECT_EQ(chief->Wait(), 0) << chief->output();
  ExpectTheJobIsDone();
}

TEST_F(LostWorkerTest, OneThatSleptIsShutOut) {
  auto chief = StartWorker("0");
  auto sleeper = StartWorker("1");
  EXPECT_TRUE(sleeper->ReadUntil("training to step")) << sleeper->output();
  sleeper->Signal(SIGSTOP);
  EXPECT_TRUE(ps_[0]->ReadUntil("is fenced")) << ps_[0]->output();
  sleeper->Signal(SIGCONT);
  EXPECT_EQ(sleeper->Wait(), kExitRestart) << sleeper->output();
  EXPECT_THAT(sleeper->output(), HasSubstr("fenced"));
  EXPECT_EQ(chief->Wait(), 0) << chief->output();
  ExpectTheJobIsDone();
}

}  // namespace
}  // namespace holdfast
