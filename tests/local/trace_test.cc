// SPDX-License-Identifier: Apache-2.0

// --trace of the workers: the content of the files, however the worker ends.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/trace/testing/trace_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() : folder_(FreshFolder()) { WriteExamples(folder_); }

  // Trains with two ps and two workers. Returns the result's digest.
  std::string Train(const SmallJob& job,
                    const std::vector<std::string>& flags) {
    const std::string run_dir = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> args = {
        kHoldfast,
        "local",
        absl::StrCat("--job=", WriteJob(folder_, job)),
        "--ps=2",
        "--workers=2",
        absl::StrCat("--run_dir=", run_dir)};
    args.insert(args.end(), flags.begin(), flags.end());
    Program program(args);
    EXPECT_EQ(program.Wait(), 0) << program.output();
    log_ = ReadText(run_dir + "/worker-0.log");
    return StringIn(ReadResult(run_dir + "/result.json"), "digest");
  }

  ReadTrace TraceOf(const std::string& task) {
    return ReadTrace(ReadText(absl::StrCat(folder_, "/", task, ".json")));
  }
  std::string Flag() const {
    return absl::StrCat("--trace=", folder_, "/%t.json");
  }

  const std::string folder_;
  int runs_ = 0;
  std::string log_;
};

std::set<std::string> NamesOf(const std::vector<ReadTrace::Event>& events) {
  std::set<std::string> names;
  for (const ReadTrace::Event& event : events) names.insert(event.name);
  return names;
}

TEST_F(TraceTest, ShowsComputationAndCallsOfSteps) {
  const std::string digest =
      Train({}, {absl::StrCat("--worker_flags=", Flag())});
  for (const std::string worker : {"worker-0", "worker-1"}) {
    SCOPED_TRACE(worker);
    const ReadTrace trace = TraceOf(worker);
    EXPECT_TRUE(trace.Nests());
    EXPECT_EQ(trace.OfKind("step").size(), 40);
    EXPECT_THAT(NamesOf(trace.OfKind("compute")),
                IsSupersetOf({"MatMul", "AddBias", "Relu", "ReluGradient",
                              "SoftmaxCrossEntropy"}));
    EXPECT_THAT(NamesOf(trace.OfKind("model")),
                IsSupersetOf({"gradient", "forward", "backward", "dense"}));
    EXPECT_THAT(NamesOf(trace.OfKind("wait")),
                IsSupersetOf({"input", "verdict and version"}));
    EXPECT_THAT(NamesOf(trace.OfKind("rpc")),
                IsSupersetOf({"Push", "Pull", "Contribute"}));
    EXPECT_THAT(NamesOf(trace.OfKind("copy")), ::testing::IsEmpty());
    // In each step, a gradient to each ps and the answer.
    std::map<std::string, std::set<double>> steps;
    for (const ReadTrace::Event& event : trace.OfKind("rpc")) {
      // A worker that ends does not wait until its values are released.
      if (event.name != "Unpin") {
        EXPECT_EQ(event.error, "") << event.name;
      }
      if (event.name != "Push") continue;
      steps[event.track].insert(event.args.at("step"));
      EXPECT_GT(event.args.at("sent_bytes"), 100);
      EXPECT_GT(event.args.at("received_bytes"), 0);
    }
    EXPECT_EQ(steps["tensors: ps 0"].size(), 40);
    EXPECT_EQ(steps["tensors: ps 1"].size(), 40);
    EXPECT_GT(trace.data.at("compute_seconds"), 0);
    EXPECT_GT(trace.data.at("rpc_seconds"), 0);
    EXPECT_EQ(trace.data.at("spans_dropped"), 0);
  }
  EXPECT_THAT(log_, AllOf(HasSubstr("the trace is in "),
                          HasSubstr("hidden behind computation")));
  // Tracing does not change the result.
  EXPECT_EQ(Train({}, {}), digest);
  EXPECT_THAT(log_, ::testing::Not(HasSubstr("trace")));
}

TEST_F(TraceTest, ShowsTickets) {
  SmallJob job;
  job.consistency = "asynchronous {}";
  Train(job, {absl::StrCat("--worker_flags=", Flag())});
  const ReadTrace trace = TraceOf("worker-0");
  EXPECT_TRUE(trace.Nests());
  EXPECT_THAT(NamesOf(trace.OfKind("rpc")),
              IsSupersetOf({"TakeTicket", "Push", "Apply", "Pull"}));
  EXPECT_THAT(NamesOf(trace.OfKind("wait")),
              IsSupersetOf({"ticket", "input", "version", "verdict"}));
  EXPECT_GT(trace.OfKind("step").size(), 0);
}

TEST_F(TraceTest, IsWrittenHoweverTheWorkerEnds) {
  const std::vector<uint16_t> ports = TakePorts(3);
  const std::string ps_hosts = absl::StrCat("--ps_hosts=localhost:", ports[0]);
  const std::string worker_hosts = absl::StrCat(
      "--worker_hosts=localhost:", ports[1], ",localhost:", ports[2]);
  const std::string job = absl::StrCat("--job=", WriteJob(folder_, {}));
  Program ps({kPsServer, ps_hosts, worker_hosts, "--task_index=0"});
  Program stopped(
      {kPsWorker, job, ps_hosts, worker_hosts, Flag(), "--task_index=0"});
  // Waiting for the other worker in the first step.
  ASSERT_TRUE(stopped.ReadUntil("training to step"));
  ASSERT_TRUE(stopped.ReadUntil("waiting for")) << stopped.output();
  Program refused({kPsWorker, job, "--seed=2", ps_hosts, worker_hosts, Flag(),
                   "--task_index=1"});
  EXPECT_EQ(refused.Wait(), 2) << refused.output();
  stopped.Signal(SIGTERM);
  EXPECT_EQ(stopped.Wait(), 138) << stopped.output();
  EXPECT_THAT(NamesOf(TraceOf("worker-0").OfKind("rpc")),
              IsSupersetOf({"Declare", "GetPlacement", "Pull"}));
  EXPECT_THAT(NamesOf(TraceOf("worker-0").OfKind("compute")),
              IsSupersetOf({"MatMul"}));
  EXPECT_EQ(TraceOf("worker-1").OfKind("step").size(), 0);
}

TEST_F(TraceTest, AFileThatCannotBeWritten) {
  Program worker({kPsWorker, absl::StrCat("--job=", WriteJob(folder_, {})),
                  "--ps_hosts=localhost:1",
                  "--worker_hosts=localhost:2,localhost:3", "--task_index=0",
                  "--trace=/no/such/folder/x.json"});
  EXPECT_EQ(worker.Wait(), 2);
  EXPECT_THAT(worker.output(),
              HasSubstr("--trace: cannot write /no/such/folder/x.json: No such "
                        "file or directory"));
}

}  // namespace
}  // namespace holdfast
