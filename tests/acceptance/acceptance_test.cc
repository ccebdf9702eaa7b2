// SPDX-License-Identifier: Apache-2.0

// The promises of the examples, on real data with real daemons: accuracies,
// equal digests, and a late worker that is waited for.

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/shared_memory/arena.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr char kSoftmax[] = "examples/fashion_mnist_softmax.textproto";
constexpr char kMlp[] = "examples/fashion_mnist_mlp.textproto";
constexpr char kCnn[] = "examples/fashion_mnist_cnn.textproto";
constexpr char kResNet[] = "examples/fashion_mnist_resnet.textproto";
constexpr char kMlpAdam[] = "examples/fashion_mnist_mlp_adam.textproto";

class AcceptanceTest : public ::testing::Test {
 protected:
  AcceptanceTest() : folder_(FreshFolder()) {}

  // The result.json of the job, run with additional flags.
  google::protobuf::Struct Train(const std::string& job,
                                 const std::vector<std::string>& flags) {
    const std::string run_dir = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> args = {kHoldfast, "local", "--job=" + job,
                                     "--run_dir=" + run_dir};
    args.insert(args.end(), flags.begin(), flags.end());
    Program program(args);
    EXPECT_EQ(program.Wait(absl::Minutes(10)), 0) << program.output();
    // Neighbors share memory by default.
    if (SharedArena::HugePagesWork()) {
      EXPECT_THAT(ReadText(run_dir + "/worker-0.log"),
                  HasSubstr("tensors pass through shared memory"));
    }
    return ReadResult(run_dir + "/result.json");
  }

  // The job file with another number of steps.
  std::string Shortened(const std::string& job, int steps) {
    std::string text;
    for (absl::string_view line : absl::StrSplit(ReadText(job), '\n')) {
      absl::StrAppend(
          &text,
          absl::StartsWith(line, "steps:") || absl::StartsWith(line, "epochs:")
              ? absl::StrCat("steps: ", steps)
              : std::string(line),
          "\n");
    }
    EXPECT_THAT(text, HasSubstr(absl::StrCat("steps: ", steps)));
    const std::string path =
        absl::StrCat(folder_, "/", steps, "-", jobs_++, ".textproto");
    WriteText(path, text);
    return path;
  }

  const std::string folder_;
  int runs_ = 0;
  int jobs_ = 0;
};

TEST_F(AcceptanceTest, SoftmaxReachesItsAccuracy) {
  const auto result = Train(kSoftmax, {});
  RecordProperty("test_accuracy",
                 absl::StrCat(NumberIn(result, "test_accuracy")));
  EXPECT_EQ(NumberIn(result, "global_step"), 3000);
  EXPECT_GE(NumberIn(result, "test_accuracy"), 0.82);
}

TEST_F(AcceptanceTest, MlpReachesItsAccuracyInThreeMinutes) {
  const absl::Time begun = SteadyNow();
  const auto result = Train(kMlp, {});
  RecordProperty("test_accuracy",
                 absl::StrCat(NumberIn(result, "test_accuracy")));
  EXPECT_GE(NumberIn(result, "test_accuracy"), 0.88);
  EXPECT_LT(SteadyNow() - begun, absl::Minutes(3));
}

TEST_F(AcceptanceTest, CnnReachesItsAccuracyInTenMinutes) {
  const absl::Time begun = SteadyNow();
  const auto result = Train(kCnn, {});
  RecordProperty("test_accuracy",
                 absl::StrCat(NumberIn(result, "test_accuracy")));
  EXPECT_GE(NumberIn(result, "test_accuracy"), 0.90);
  EXPECT_LT(SteadyNow() - begun, absl::Minutes(10));
}

// After the same number of examples, with and without a bound on staleness.
TEST_F(AcceptanceTest, AsynchronousComesWithinAPercentOfSynchronous) {
  for (const std::string name : {"softmax", "mlp"}) {
    const auto accuracy = [&](const std::string& variant) {
      const auto result = Train(
          absl::StrCat("examples/fashion_mnist_", name, variant, ".textproto"),
          {});
      const double found = NumberIn(result, "test_accuracy");
      RecordProperty(name + variant, absl::StrCat(found));
      return found;
    };
    const double synchronous = accuracy("");
    EXPECT_GE(accuracy("_async"), synchronous - 0.01) << name;
    EXPECT_GE(accuracy("_bounded"), synchronous - 0.01) << name;
  }
}

// The same job and seed, twice each with 1, 2 and 3 ps, and with workers that
// pause at random.
TEST_F(AcceptanceTest, OneJobHasOneDigest) {
  for (const std::string& job : {Shortened(kSoftmax, 300), Shortened(kMlp, 120),
                                 Shortened(kMlpAdam, 120), Shortened(kCnn, 20),
                                 Shortened(kResNet, 10)}) {
    std::set<std::string> digests;
    for (const char* ps : {"--ps=1", "--ps=2", "--ps=3"}) {
      for (int run = 0; run < 2; ++run) {
        digests.insert(StringIn(Train(job, {ps}), "digest"));
      }
    }
    digests.insert(StringIn(
        Train(job, {"--ps=2", absl::StrCat("--worker_binary=", kSlowWorker),
                    "--worker_flags=--slow_step_ms_max=50"}),
        "digest"));
    EXPECT_THAT(digests, ::testing::SizeIs(1)) << job;
    EXPECT_NE(StringIn(Train(job, {"--seed=77"}), "digest"), *digests.begin())
        << "the seed does not matter";
  }
}

// With N = M = 2 each step has one gradient of each worker, even if one of them
// starts 20 s late: the job visibly waits for it.
TEST_F(AcceptanceTest, ALateWorkerIsWaitedFor) {
  const std::vector<uint16_t> ports = TakePorts(3);
  const std::string cluster =
      absl::StrCat("--cluster_spec={\"ps\": [\"localhost:", ports[0],
                   "\"], \"worker\": [\"localhost:", ports[1],
                   "\", \"localhost:", ports[2], "\"]}");
  const std::string job = "--job=" + Shortened(kSoftmax, 200);
  const std::string result = folder_ + "/result.json";
  Program ps({kPsServer, cluster, "--task_index=0"});
  Program early(
      {kPsWorker, cluster, job, "--task_index=0", "--result_file=" + result});
  EXPECT_TRUE(early.ReadUntil("waiting for"));
  EXPECT_TRUE(early.ReadUntil("/job:worker/task:1 (not joined)"));
  // Only time must pass here.
  absl::SleepFor(absl::Seconds(20));
  Program late({kPsWorker, cluster, job, "--task_index=1"});
  EXPECT_EQ(late.Wait(), 0) << late.output();
  EXPECT_EQ(early.Wait(), 0) << early.output();
  EXPECT_EQ(ps.Wait(), 0) << ps.output();
  for (const Program* worker : {&early, &late}) {
    EXPECT_THAT(worker->output(),
                HasSubstr("leaves: 200 accepted, 0 stale, 0 duplicate"));
  }
  // The same as if both had been there from the beginning.
  EXPECT_EQ(StringIn(ReadResult(result), "digest"),
            StringIn(Train(Shortened(kSoftmax, 200), {}), "digest"));
}

}  // namespace
}  // namespace holdfast
