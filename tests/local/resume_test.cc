// SPDX-License-Identifier: Apache-2.0

// A job is resumed with an edited job file: docs/protocol/recovery.md, "With
// another job file".

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() : folder_(FreshFolder()) { WriteExamples(folder_); }

  // Runs the job in the folder `run`. Returns the exit code.
  int Train(const std::string& run, const SmallJob& job, int ps = 2,
            int workers = 2) {
    run_dir_ = folder_ + "/" + run;
    Program program({kHoldfast, "local", "--job=" + WriteJob(folder_, job),
                     "--run_dir=" + run_dir_, "--ps=" + std::to_string(ps),
                     "--workers=" + std::to_string(workers)});
    const int code = program.Wait();
    said_ = program.output();
    return code;
  }
  google::protobuf::Struct Result() const {
    return ReadResult(run_dir_ + "/result.json");
  }
  std::string Digest() const { return StringIn(Result(), "digest"); }
  std::string LogOf(const std::string& task) const {
    return ReadText(run_dir_ + "/" + task + ".log");
  }

  const std::string folder_;
  std::string run_dir_;
  std::string said_;
};

TEST_F(ResumeTest, MoreStepsEndLikeALongerJob) {
  SmallJob job;
  job.steps = 80;
  ASSERT_EQ(Train("undisturbed", job), 0) << said_;
  const std::string digest = Digest();

  job.steps = 40;
  ASSERT_EQ(Train("longer", job), 0) << said_;
  EXPECT_EQ(NumberIn(Result(), "global_step"), 40);
  EXPECT_EQ(Train("longer", job), 0) << said_;
  EXPECT_THAT(said_, HasSubstr("To train further, give the job more steps"));
  job.steps = 80;
  ASSERT_EQ(Train("longer", job, /*ps=*/3), 0) << said_;
  EXPECT_EQ(NumberIn(Result(), "global_step"), 80);
  EXPECT_EQ(Digest(), digest);
  EXPECT_THAT(LogOf("ps-0"), HasSubstr("total_steps: 40 -> 80"));
  EXPECT_EQ(NumberIn(ReadResult(run_dir_ + "/result-step00000040.json"),
                     "global_step"),
            40);
}

TEST_F(ResumeTest, AnotherRateIsTheSameOnAnyNumberOfPs) {
  SmallJob job;
  std::vector<std::string> digests;
  for (const int ps : {1, 2}) {
    const std::string run = "ps" + std::to_string(ps);
    job.steps = 30;
    job.optimizer = "learning_rate: 0.2 momentum { momentum: 0.9 }";
    ASSERT_EQ(Train(run, job), 0) << said_;
    job.steps = 60;
    job.optimizer =
        "learning_rate: 0.1 momentum { momentum: 0.9 } "
        "schedule { cosine { decay_steps: 60 } }";
    ASSERT_EQ(Train(run, job, ps), 0) << said_;
    digests.push_back(Digest());
  }
  EXPECT_EQ(digests[0], digests[1]);
  ASSERT_EQ(Train("from_the_beginning", job), 0) << said_;
  EXPECT_NE(Digest(), digests[0]) << "the first 30 steps had another rate";
}

TEST_F(ResumeTest, WhatMayNotChangeIsNamed) {
  SmallJob job;
  ASSERT_EQ(Train("run", job), 0) << said_;
  const std::string digest = Digest();
  SmallJob other = job;
  other.steps = 80;
  other.more += "micro_batches: 2\n";
  EXPECT_EQ(Train("run", other), 2);
  EXPECT_THAT(said_, HasSubstr("cannot change when a job continues: added: "
                               "micro_batches: 2"));
  EXPECT_EQ(Digest(), digest) << "its result is kept";
  // The same holds if the job is not finished.
  std::filesystem::remove(run_dir_ + "/result.json");
  SmallJob fewer = job;
  fewer.steps = 30;
  EXPECT_EQ(Train("run", fewer), 2);
  EXPECT_THAT(said_, HasSubstr("total_steps is 30, but the job has made 40 "
                               "steps, which cannot be undone"));
  job.steps = 80;
  EXPECT_EQ(Train("run", job), 0) << said_;
}

TEST_F(ResumeTest, AsynchronousOnesGoOnWithOtherWorkers) {
  SmallJob job;
  job.consistency = "asynchronous {}";
  ASSERT_EQ(Train("run", job), 0) << said_;
  job.steps = 120;
  ASSERT_EQ(Train("run", job, /*ps=*/1, /*workers=*/3), 0) << said_;
  EXPECT_EQ(NumberIn(Result(), "global_step"), 120);
  EXPECT_THAT(LogOf("ps-0"), HasSubstr("num_workers: 2 -> 3"));
}

}  // namespace
}  // namespace holdfast
