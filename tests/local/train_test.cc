// SPDX-License-Identifier: Apache-2.0

// `holdfast local` with real daemons: the results, and that they do not depend
// on what should not matter.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kOnSlowWorkers =
    absl::StrCat("--worker_binary=", kSlowWorker);

class TrainTest : public ::testing::Test {
 protected:
  TrainTest() : folder_(FreshFolder()) { WriteExamples(folder_); }

  // Runs the job with additional flags in a separate run directory, and returns
  // its path.
  std::string Train(const SmallJob& job, std::vector<std::string> flags) {
    const std::string run_dir = absl::StrCat(folder_, "/run-", runs_++);
    std::vector<std::string> args = {
        kHoldfast, "local", absl::StrCat("--job=", WriteJob(folder_, job)),
        absl::StrCat("--run_dir=", run_dir)};
    args.insert(args.end(), flags.begin(), flags.end());
    Program program(args);
    EXPECT_EQ(program.Wait(), 0) << program.output();
    output_ = program.output();
    return run_dir;
  }

  // The digest of the variables after such a run.
  std::string DigestOf(const SmallJob& job, std::vector<std::string> flags) {
    return StringIn(ReadResult(Train(job, flags) + "/result.json"), "digest");
  }

  const std::string folder_;
  int runs_ = 0;
  std::string output_;
};

TEST_F(TrainTest, LeavesAResultAndSaysIt) {
  const std::string run_dir = Train({}, {"--ps=2", "--workers=2"});
  const google::protobuf::Struct result = ReadResult(run_dir + "/result.json");
  EXPECT_EQ(StringIn(result, "job"), "small");
  EXPECT_EQ(StringIn(result, "version"), kVersion);
  for (const char* task : {"ps-0", "worker-0"}) {
    const std::string log = ReadText(absl::StrCat(run_dir, "/", task, ".log"));
    // After the command line, which holdfast writes.
    const size_t first = log.find('\n') + 1;
    EXPECT_THAT(log.substr(first, log.find('\n', first) - first),
                HasSubstr(absl::StrCat(" ", kVersion, " (protocol ")));
  }
  EXPECT_EQ(NumberIn(result, "ps"), 2);
  EXPECT_EQ(NumberIn(result, "workers"), 2);
  EXPECT_EQ(NumberIn(result, "seed"), 1);
  EXPECT_EQ(NumberIn(result, "global_step"), 40);
  // 2 gradients of 16 examples in each of 40 steps.
  EXPECT_EQ(NumberIn(result, "examples"), 1280);
  EXPECT_GT(NumberIn(result, "wall_seconds"), 0);
  // The quarters are easy to tell apart; guessing would be right for a fourth.
  EXPECT_GT(NumberIn(result, "test_accuracy"), 0.9);
  EXPECT_LT(NumberIn(result, "test_loss"), 0.7);
  EXPECT_EQ(StringIn(result, "digest").size(), 64);
  const google::protobuf::Struct pushes =
      result.fields().at("pushes").struct_value();
  EXPECT_EQ(NumberIn(pushes, "accepted"), 80);
  EXPECT_EQ(NumberIn(pushes, "stale"), 0);
  EXPECT_EQ(NumberIn(pushes, "duplicate"), 0);

  EXPECT_THAT(output_, AllOf(HasSubstr("small: 2 ps and 2 workers"),
                             HasSubstr("small: done"),
                             HasSubstr("steps          40 in "),
                             HasSubstr(StringIn(result, "digest")),
                             HasSubstr(run_dir + "/result.json")));
  for (const char* name : {"ps-0", "ps-1", "worker-0", "worker-1"}) {
    EXPECT_NE(ReadText(absl::StrCat(run_dir, "/", name, ".log")), "") << name;
    EXPECT_EQ(ReadText(absl::StrCat(run_dir, "/", name, ".pid")), "") << name;
  }
}

// Replicas on the devices of a worker divide its batches as micro-batches do.
TEST_F(TrainTest, ReplicasAreMicroBatches) {
  SmallJob job;
  const std::string whole = DigestOf(job, {"--worker_flags=--device=cpu"});
  job.more = "micro_batches: 3";
  const std::string digest = DigestOf(job, {"--worker_flags=--device=cpu"});
  EXPECT_NE(digest, whole);
  job.more = "";
  EXPECT_EQ(DigestOf(job, {"--worker_flags=--device=cpu,cpu,cpu"}), digest);
}

TEST_F(TrainTest, NumberOfPsDoesNotMatter) {
  const std::string digest = DigestOf({}, {"--ps=1"});
  EXPECT_EQ(DigestOf({}, {"--ps=1"}), digest);
  EXPECT_EQ(DigestOf({}, {"--ps=2"}), digest);
  EXPECT_EQ(DigestOf({}, {"--ps=3"}), digest);
}

// Three gradients per step from two workers: the first worker contributes
// twice.
TEST_F(TrainTest, MoreGradientsThanWorkersAndNoMultiple) {
  SmallJob job;
  job.steps = 20;
  job.replicas_to_aggregate = 3;
  const std::string run_dir = Train(job, {"--ps=1"});
  const google::protobuf::Struct result = ReadResult(run_dir + "/result.json");
  // 3 gradients of 16 examples in each of 20 steps.
  EXPECT_EQ(NumberIn(result, "examples"), 960);
  const std::string digest = StringIn(result, "digest");
  EXPECT_EQ(DigestOf(job, {"--ps=2"}), digest);
  EXPECT_EQ(DigestOf(job, {"--ps=4"}), digest);
}

// The certificates are made for the run. Its logs show that they are used:
// workers would not connect to a ps without one.
TEST_F(TrainTest, NorDoesEncryption) {
  const std::string digest = DigestOf({}, {"--ps=2"});
  const std::string run_dir = Train({}, {"--ps=2", "--tls"});
  EXPECT_EQ(StringIn(ReadResult(run_dir + "/result.json"), "digest"), digest);
  EXPECT_NE(ReadText(run_dir + "/tls/ps-1/tls.crt"), "");
  EXPECT_THAT(output_, HasSubstr("step"));
}

// Includes slots, bias corrections, clip factors and slices of uneven sizes.
TEST_F(TrainTest, NumberOfPsDoesNotMatterToAdamClippingAndSlices) {
  SmallJob job;
  job.optimizer =
      "learning_rate: 0.01 adam {} "
      "schedule { warmup_steps: 5 cosine { decay_steps: 35 } }";
  job.more =
      "clipping { global_norm: 0.5 }\n"
      "partitioner { fixed_shards { shards: 3 } }\n"
      "micro_batches: 3\n";
  const std::string digest = DigestOf(job, {"--ps=1"});
  EXPECT_EQ(DigestOf(job, {"--ps=2"}), digest);
  EXPECT_EQ(DigestOf(job, {"--ps=3", kOnSlowWorkers,
                           "--worker_flags=--slow_step_ms_max=5"}),
            digest);
  // The slices themselves do not matter either.
  const size_t begin = job.more.find("partitioner");
  job.more.erase(begin, job.more.find('\n', begin) - begin);
  EXPECT_EQ(DigestOf(job, {"--ps=2"}), digest);
  // Clipping does matter.
  job.more = "micro_batches: 3\n";
  EXPECT_NE(DigestOf(job, {"--ps=2"}), digest);
}

// Jobs with 16-bit and 8-bit gradients and values learn, and give the same bits
// each time.
TEST_F(TrainTest, CompressedJobsLearn) {
  SmallJob job;
  job.more =
      "compression { variables: \".*/bias\" push: TOP_K top_k: 0.5 } "
      "compression { push: INT8 pull: BFLOAT16 }";
  const std::string run_dir = Train(job, {"--ps=2"});
  const google::protobuf::Struct result = ReadResult(run_dir + "/result.json");
  EXPECT_GT(NumberIn(result, "test_accuracy"), 0.9);
  const std::string digest = StringIn(result, "digest");
  EXPECT_NE(digest, DigestOf({}, {"--ps=2"}));
  EXPECT_EQ(digest, DigestOf(job, {"--ps=2"}));

  job.consistency = "asynchronous {}";
  job.optimizer = "learning_rate: 0.05 momentum { momentum: 0.9 }";
  job.more = "compression { push: TOP_K top_k: 0.4 pull: FLOAT16 }";
  const google::protobuf::Struct asynchronous =
      ReadResult(Train(job, {"--ps=1"}) + "/result.json");
  EXPECT_GT(NumberIn(asynchronous, "test_accuracy"), 0.7);
}

// The loss scale is too great at first, and grows again and again: steps
// overflow and are counted, and the job still learns, with the same bits for
// any number of ps.
TEST_F(TrainTest, Float16OverflowsAndGoesOn) {
  SmallJob job;
  job.steps = 80;
  job.more =
      "precision {"
      "  float16 { loss_scale { initial: 16777216 growth_interval: 10 } }"
      "}";
  const google::protobuf::Struct result =
      ReadResult(Train(job, {"--ps=1"}) + "/result.json");
  EXPECT_GT(NumberIn(result, "test_accuracy"), 0.9);
  const google::protobuf::Struct pushes =
      result.fields().at("pushes").struct_value();
  EXPECT_EQ(NumberIn(pushes, "accepted"), 160);
  EXPECT_GT(NumberIn(pushes, "not_finite"), 2);
  EXPECT_LT(NumberIn(pushes, "not_finite"), 60);
  // Each of the other gradients stands for 16 examples.
  EXPECT_EQ(NumberIn(result, "examples"),
            16 * (160 - NumberIn(pushes, "not_finite")));
  const std::string digest = StringIn(result, "digest");
  EXPECT_EQ(DigestOf(job, {"--ps=2", kOnSlowWorkers,
                           "--worker_flags=--slow_step_ms_max=5"}),
            digest);
  job.more = "";
  EXPECT_NE(DigestOf(job, {"--ps=1"}), digest);
  // bfloat16 has the range of float32: nothing overflows.
  job.more = "precision { bfloat16 {} }";
  const google::protobuf::Struct bfloat16 =
      ReadResult(Train(job, {"--ps=2"}) + "/result.json");
  EXPECT_GT(NumberIn(bfloat16, "test_accuracy"), 0.9);
  EXPECT_EQ(
      NumberIn(bfloat16.fields().at("pushes").struct_value(), "not_finite"), 0);
}

TEST_F(TrainTest, SpeedOfWorkersDoesNotMatter) {
  const std::string digest = DigestOf({}, {});
  EXPECT_EQ(
      DigestOf({}, {kOnSlowWorkers, "--worker_flags=--slow_step_ms_max=20"}),
      digest);
}

TEST_F(TrainTest, PackedFilesDoNotMatter) {
  SmallJob job;
  job.gzip = true;
  EXPECT_EQ(DigestOf(job, {}), DigestOf({}, {}));
}

TEST_F(TrainTest, SeedMatters) {
  const std::string digest = DigestOf({}, {});
  EXPECT_NE(DigestOf({}, {"--seed=2"}), digest);
  EXPECT_EQ(DigestOf({}, {"--seed=1"}), digest);
}

// N = 2 M: each of 2 workers fills 2 seats of 4.
TEST_F(TrainTest, WorkersFillSeveralSeats) {
  SmallJob job;
  job.steps = 20;
  job.replicas_to_aggregate = 4;
  const google::protobuf::Struct result =
      ReadResult(Train(job, {}) + "/result.json");
  EXPECT_EQ(NumberIn(result, "examples"), 20 * 4 * 16);
  EXPECT_EQ(NumberIn(result.fields().at("pushes").struct_value(), "accepted"),
            80);
}

// N = 1, M = 2: one of each step's two gradients counts, and the other, if it
// still arrives, is stale.
TEST_F(TrainTest, BackupReplicaIsStale) {
  SmallJob job;
  job.steps = 60;
  job.replicas_to_aggregate = 1;
  const google::protobuf::Struct result = ReadResult(
      Train(job, {kOnSlowWorkers, "--worker_flags=--slow_step_ms_max=5"}) +
      "/result.json");
  EXPECT_EQ(NumberIn(result, "global_step"), 60);
  EXPECT_EQ(NumberIn(result, "examples"), 60 * 16);
  const google::protobuf::Struct pushes =
      result.fields().at("pushes").struct_value();
  EXPECT_EQ(NumberIn(pushes, "accepted"), 60);
  EXPECT_GT(NumberIn(pushes, "stale"), 0);
  EXPECT_EQ(NumberIn(pushes, "aborted"), 0);
}

TEST_F(TrainTest, JobWithoutATestSetHasNoTestResult) {
  const std::string job = WriteJob(folder_, {});
  std::string text = ReadText(job);
  const size_t begin = text.find("  test {");
  text.erase(begin, text.find('\n', begin) - begin);
  const size_t evaluation = text.find("evaluation");
  text.erase(evaluation, text.find('\n', evaluation) - evaluation);
  WriteText(job, text);
  Program program({kHoldfast, "local", "--job=" + job,
                   absl::StrCat("--run_dir=", folder_, "/run")});
  EXPECT_EQ(program.Wait(), 0) << program.output();
  const google::protobuf::Struct result =
      ReadResult(folder_ + "/run/result.json");
  EXPECT_EQ(result.fields().count("test_accuracy"), 0);
  EXPECT_EQ(StringIn(result, "digest").size(), 64);
}

}  // namespace
}  // namespace holdfast
