// SPDX-License-Identifier: Apache-2.0

// `holdfast trace`: one trace of all tasks of a running job, with real
// processes.

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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
using ::testing::UnorderedElementsAre;

using Event = ReadTrace::Event;

class ClusterTraceTest : public ::testing::Test {
 protected:
  ClusterTraceTest() : folder_(FreshFolder()), run_dir_(folder_ + "/run") {
    WriteExamples(folder_);
  }
  ~ClusterTraceTest() override {
    if (job_ == nullptr) return;
    job_->Signal(SIGINT);
    EXPECT_EQ(job_->Wait(), 130) << job_->output();
  }

  // A job of two ps and two workers that trains, with steps of up to 20 ms,
  // for longer than any test.
  void StartJob(SmallJob job = {}) {
    job.steps = 100000;
    job_ = std::make_unique<Program>(std::vector<std::string>{
        kHoldfast, "local", "--run_dir=" + run_dir_, "--ps=2", "--workers=2",
        "--on_failure=restart", "--lease=2s", "--", kSlowWorker,
        "--job=" + WriteJob(folder_, job), "--slow_step_ms_max=20"});
    ASSERT_TRUE(job_->ReadUntil(" examples/s")) << job_->output();
  }
  // The same with a Python script as worker.
  void StartScript(const std::string& text) {
    WriteText(folder_ + "/train.py", text);
    const std::string here = std::filesystem::current_path();
    job_ = std::make_unique<Program>(
        std::vector<std::string>{kHoldfast, "local", "--run_dir=" + run_dir_,
                                 "--ps=2", "--workers=2",
                                 "--on_failure=restart", "--lease=2s", "--",
                                 "/usr/bin/python3", folder_ + "/train.py"},
        std::map<std::string, std::string>{
            {"HOLDFAST_LIBRARY", here + "/client/c_api/libholdfast.so"},
            {"PYTHONPATH", here + "/python"},
            {"PYTHONDONTWRITEBYTECODE", "1"}});
    ASSERT_TRUE(job_->ReadUntil(" examples/s")) << job_->output();
  }
  std::unique_ptr<Program> StartTrace(std::vector<std::string> flags) {
    std::vector<std::string> args = {
        kHoldfast, "trace", "--run_dir=" + run_dir_, "--output=" + output_};
    args.insert(args.end(), flags.begin(), flags.end());
    return std::make_unique<Program>(args);
  }
  void Kill(const std::string& task) {
    const std::string pid = ReadText(absl::StrCat(run_dir_, "/", task, ".pid"));
    ASSERT_EQ(kill(std::atoi(pid.c_str()), SIGKILL), 0) << pid;
  }

  const std::string folder_;
  const std::string run_dir_;
  const std::string output_ = folder_ + "/trace.json";
  std::unique_ptr<Program> job_;
};

// The task of a process of the trace, such as "/job:ps/task:1".
std::string TaskOf(const Event& event) {
  return event.process.substr(0, event.process.find(' '));
}

// The spans of a task on tracks whose names begin with `track`.
std::vector<Event> SpansOf(const ReadTrace& trace, const std::string& task,
                           const std::string& track) {
  std::vector<Event> found;
  for (const Event& event : trace.events) {
    if (TaskOf(event) == task && absl::StartsWith(event.track, track)) {
      found.push_back(event);
    }
  }
  return found;
}

// The events with this name and argument.
std::vector<Event> Where(const std::vector<Event>& events,
                         const std::string& name, const std::string& arg,
                         double value) {
  std::vector<Event> found;
  for (const Event& event : events) {
    const auto has = event.args.find(arg);
    if (event.name == name && has != event.args.end() && has->second == value) {
      found.push_back(event);
    }
  }
  return found;
}

std::set<std::string> NamesOf(const std::vector<Event>& events) {
  std::set<std::string> names;
  for (const Event& event : events) names.insert(event.name);
  return names;
}

const char* const kPs[] = {"/job:ps/task:0", "/job:ps/task:1"};
const char* const kWorkers[] = {"/job:worker/task:0", "/job:worker/task:1"};

// All processes of a machine share one steady clock, so the measured offsets
// are known to be 0.
void CheckClocks(const std::string& text) {
  const std::regex clock(
      "\"clock_offset_us\":(-?[0-9.]+),\"clock_error_us\":([0-9.]+)");
  int tasks = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), clock), end; it != end;
       ++it) {
    double offset, error;
    ASSERT_TRUE(absl::SimpleAtod((*it)[1].str(), &offset));
    ASSERT_TRUE(absl::SimpleAtod((*it)[2].str(), &error));
    // Both values are rounded to a nanosecond.
    EXPECT_LE(std::abs(offset), error + 0.001);
    ++tasks;
  }
  EXPECT_EQ(tasks, 4);
}

TEST_F(ClusterTraceTest, EveryStepOfASynchronousJobOnEveryTask) {
  StartJob();
  const auto program = StartTrace({"--steps=10"});
  EXPECT_EQ(program->Wait(), 0) << program->output();
  EXPECT_THAT(program->output(),
              AllOf(HasSubstr("trace.json: steps "),
                    HasSubstr("/job:ps/task:0"), HasSubstr("us of those of")));
  const std::string text = ReadText(output_);
  CheckClocks(text);
  const ReadTrace trace(text);
  EXPECT_TRUE(trace.Nests());
  std::set<std::string> tasks;
  for (const Event& event : trace.events) {
    tasks.insert(TaskOf(event));
    EXPECT_EQ(event.error, "") << event.name;
  }
  EXPECT_THAT(tasks,
              UnorderedElementsAre(kPs[0], kPs[1], kWorkers[0], kWorkers[1]));
  const double first = trace.data.at("first");
  const double end = trace.data.at("end");
  EXPECT_EQ(end - first, 10);
  // The errors of two clocks.
  const double slack = 2 * trace.data.at("clock_error_us") + 0.01;

  for (const char* worker : kWorkers) {
    SCOPED_TRACE(worker);
    const std::vector<Event> training = SpansOf(trace, worker, "training");
    EXPECT_THAT(NamesOf(training),
                IsSupersetOf({"input", "compute", "push", "verdict"}));
    for (double step = first; step < end; ++step) {
      SCOPED_TRACE(step);
      EXPECT_EQ(
          Where(training, absl::StrCat("step ", step), "step", step).size(),
          1u);
      // Waits for values during the forward pass divide it.
      const auto compute = Where(training, "compute", "step", step);
      ASSERT_FALSE(compute.empty());
      const auto contributed = Where(SpansOf(trace, worker, "control: ps 0"),
                                     "Contribute", "step", step);
      ASSERT_EQ(contributed.size(), 1u);
      EXPECT_EQ(contributed[0].args.count("seat"), 1u);
      EXPECT_EQ(contributed[0].args.count("sequence"), 1u);
      EXPECT_GE(contributed[0].end, compute.back().end);
      for (const int ps : {0, 1}) {
        SCOPED_TRACE(kPs[ps]);
        const auto commit = Where(SpansOf(trace, kPs[ps], "shard: commit"),
                                  "Commit", "step", step);
        ASSERT_EQ(commit.size(), 1u);
        const auto calls =
            SpansOf(trace, worker, absl::StrCat("tensors: ps ", ps));
        const auto pushed = Where(calls, "Push", "step", step);
        ASSERT_FALSE(pushed.empty());
        for (const Event& push : pushed) {
          EXPECT_LE(push.begin, commit[0].begin + slack);
        }
        EXPECT_LE(contributed[0].begin, commit[0].begin + slack);
        // Parked until the version exists.
        const auto pulled = Where(calls, "Pull", "version", step + 1);
        ASSERT_FALSE(pulled.empty());
        for (const Event& pull : pulled) {
          EXPECT_GE(pull.end, commit[0].end - slack);
        }
        // The same push as the ps saw it.
        const double sequence = pushed[0].args.at("sequence");
        const auto served = Where(SpansOf(trace, kPs[ps], "pushes"), "Push",
                                  "sequence", sequence);
        ASSERT_FALSE(served.empty());
      }
    }
  }
  for (const char* row : {"coordinator: collecting", "coordinator: verdict",
                          "coordinator: commit"}) {
    const auto spans = SpansOf(trace, kPs[0], row);
    for (double step = first; step < end; ++step) {
      EXPECT_EQ(Where(spans, absl::StrCat("step ", step), "step", step).size(),
                1u)
          << row << " " << step;
    }
  }
}

// A Python program whose steps look like those of ps_worker.
TEST_F(ClusterTraceTest, APythonScriptsPhasesAndCalls) {
  StartScript(R"(
import time
import numpy as np
import holdfast
with holdfast.connect() as cluster:
    cluster.declare({"a": holdfast.Variable(10), "b": holdfast.Variable(10)},
                    optimizer=holdfast.Sgd(learning_rate=0.1), steps=100000)
    gradient = np.ones(10, np.float32)
    for batch in cluster.batches():
        with cluster.waiting_for_input():
            time.sleep(0.01)
        cluster.push([gradient, gradient], loss=0.0, examples=1)
)");
  const auto program = StartTrace({"--steps=5"});
  EXPECT_EQ(program->Wait(), 0) << program->output();
  const std::string text = ReadText(output_);
  CheckClocks(text);
  const ReadTrace trace(text);
  EXPECT_TRUE(trace.Nests());
  const double first = trace.data.at("first");
  const double end = trace.data.at("end");
  EXPECT_EQ(end - first, 5);
  for (const char* worker : kWorkers) {
    SCOPED_TRACE(worker);
    const std::vector<Event> training = SpansOf(trace, worker, "training");
    EXPECT_THAT(NamesOf(training),
                IsSupersetOf({"input", "compute", "push", "verdict"}));
    for (double step = first; step < end; ++step) {
      SCOPED_TRACE(step);
      EXPECT_EQ(
          Where(training, absl::StrCat("step ", step), "step", step).size(),
          1u);
      const auto input = Where(training, "input", "step", step);
      ASSERT_EQ(input.size(), 1u);
      EXPECT_GE(input[0].end - input[0].begin, 10000);
      const auto contributed = Where(SpansOf(trace, worker, "control: ps 0"),
                                     "Contribute", "step", step);
      ASSERT_EQ(contributed.size(), 1u);
      EXPECT_GE(contributed[0].begin, input[0].end);
      for (const int ps : {0, 1}) {
        const auto calls =
            SpansOf(trace, worker, absl::StrCat("tensors: ps ", ps));
        EXPECT_FALSE(Where(calls, "Push", "step", step).empty()) << ps;
        EXPECT_FALSE(Where(calls, "Pull", "version", step + 1).empty()) << ps;
      }
    }
  }
}

TEST_F(ClusterTraceTest, TicketsOfAnAsynchronousJob) {
  SmallJob job;
  job.consistency = "asynchronous {}";
  StartJob(job);
  const auto program = StartTrace({"--steps=20"});
  EXPECT_EQ(program->Wait(), 0) << program->output();
  EXPECT_THAT(program->output(), HasSubstr("trace.json: tickets "));
  const std::string text = ReadText(output_);
  CheckClocks(text);
  const ReadTrace trace(text);
  EXPECT_TRUE(trace.Nests());
  const double slack = 2 * trace.data.at("clock_error_us") + 0.01;
  EXPECT_GE(SpansOf(trace, kPs[0], "coordinator: tickets").size(), 20u);
  int applied = 0;
  for (const int worker : {0, 1}) {
    SCOPED_TRACE(kWorkers[worker]);
    EXPECT_THAT(NamesOf(SpansOf(trace, kWorkers[worker], "training")),
                IsSupersetOf({"compute", "push", "verdict", "ticket"}));
    for (const int ps : {0, 1}) {
      SCOPED_TRACE(kPs[ps]);
      const auto rows = SpansOf(trace, kPs[ps], "shard: apply");
      for (const Event& apply :
           SpansOf(trace, kWorkers[worker], absl::StrCat("control: ps ", ps))) {
        if (apply.name != "Apply") continue;
        std::vector<Event> served;
        for (const Event& event :
             Where(rows, "Apply", "sequence", apply.args.at("sequence"))) {
          if (event.args.at("worker") == worker) served.push_back(event);
        }
        // At the edges of the trace, one of the two may be missing.
        if (served.size() != 1) continue;
        EXPECT_GE(served[0].begin, apply.begin - slack);
        EXPECT_LE(served[0].end, apply.end + slack);
        ++applied;
      }
    }
  }
  EXPECT_GE(applied, 2 * 18);
}

TEST_F(ClusterTraceTest, AWorkerThatDiesMeanwhileIsNamed) {
  StartJob();
  const auto program = StartTrace({"--steps=10000", "--wait=4s"});
  ASSERT_TRUE(program->ReadUntil("waiting for step ")) << program->output();
  Kill("worker-1");
  EXPECT_EQ(program->Wait(), 1) << program->output();
  EXPECT_THAT(program->output(), AllOf(HasSubstr("trace.json lacks"),
                                       HasSubstr("its last steps: "),
                                       HasSubstr("/job:worker/task:1: it ")));
  const ReadTrace trace(ReadText(output_));
  EXPECT_FALSE(SpansOf(trace, kWorkers[0], "training").empty());
}

TEST_F(ClusterTraceTest, ItEndsWhenPs0Dies) {
  StartJob();
  const auto program = StartTrace({"--steps=10000"});
  ASSERT_TRUE(program->ReadUntil("waiting for step ")) << program->output();
  Kill("ps-0");
  EXPECT_EQ(program->Wait(), 1) << program->output();
  EXPECT_THAT(program->output(), HasSubstr("/job:ps/task:0"));
  EXPECT_EQ(ReadText(output_), "");
  // The job goes on, and can be traced.
  ASSERT_TRUE(job_->ReadUntil("ps-0 (pid ")) << job_->output();
}

TEST_F(ClusterTraceTest, ThereIsOneAtATime) {
  StartJob();
  const auto first = StartTrace({"--steps=10000"});
  ASSERT_TRUE(first->ReadUntil("waiting for step ")) << first->output();
  Program second({kHoldfast, "trace", "--run_dir=" + run_dir_,
                  "--output=" + folder_ + "/second.json"});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.output(), HasSubstr("another trace, of 10000 steps"));
  first->Signal(SIGINT);
  EXPECT_EQ(first->Wait(), 128 + SIGINT);
}

}  // namespace
}  // namespace holdfast
