// SPDX-License-Identifier: Apache-2.0
#include "cli/local_workers.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/job/cluster_spec.h"
#include "common/job/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const TaskId kFirst = {kWorkerJob, 0};
const TaskId kSecond = {kWorkerJob, 1};

proto::Job Job() {
  proto::Job job;
  job.set_name("job");
  job.set_batch_size(32);
  job.set_steps(40);
  return job;
}

class LocalWorkersTest : public ::testing::Test {
 protected:
  LocalWorkersTest()
      : cluster_(*ClusterSpec::FromHosts("a:1,b:2", "c:3,d:4", "")),
        directory_(*RunDirectory::Open(::testing::TempDir() + "/run")) {
    std::filesystem::remove(directory_->result_path());
    unsetenv("OMP_NUM_THREADS");
    unsetenv("PYTHONUNBUFFERED");
  }

  static CommandWorkers Command(const std::string& program,
                                const std::vector<std::string>& args) {
    return CommandWorkers({program, args, /*threads=*/{}});
  }

  const ClusterSpec cluster_;
  const std::unique_ptr<RunDirectory> directory_;
};

TEST_F(LocalWorkersTest, OfAJobFileHaveTheirPlaceAsFlags) {
  const JobFileWorkers workers(
      {"job.textproto", Job(), "/bin/worker", {"--seed=5"}});
  const auto program = workers.ProgramFor(
      kSecond, cluster_, {"/tls/worker-1", "/hosts/1"}, *directory_);
  EXPECT_EQ(program.name, "worker-1");
  EXPECT_EQ(program.binary, "/bin/worker");
  EXPECT_THAT(
      program.args,
      ElementsAre("--job_name=worker", "--task_index=1",
                  "--cluster_spec=" + directory_->cluster_spec_path(),
                  "--tls_dir=/tls/worker-1", "--same_host_dir=/hosts/1",
                  "--job=job.textproto",
                  "--result_file=" + directory_->result_path(), "--seed=5"));
  EXPECT_THAT(program.environment, IsEmpty());
  EXPECT_THAT(workers.Awaited(cluster_), ElementsAre(kFirst));
}

TEST_F(LocalWorkersTest, OfAJobFileKnowTheirJob) {
  const proto::Job job = Job();
  const auto has_more_to_do = [](const proto::Job& given,
                                 const proto::Journal& journal) {
    return JobFileWorkers({"job.textproto", given, "", {}})
        .HasMoreToDo(journal);
  };
  proto::Journal journal;
  journal.set_job_digest(JobDigest(job));
  EXPECT_FALSE(*has_more_to_do(job, journal));
  proto::Job longer = job;
  longer.set_steps(80);
  EXPECT_EQ(has_more_to_do(longer, journal).status().message(),
            "its checkpoints belong to a job without a job file, which a "
            "program declared; job.textproto cannot continue it");
  journal.mutable_declaration()->mutable_job()->set_job_file(SharedJob(job));
  EXPECT_TRUE(*has_more_to_do(longer, journal));
  proto::Job other = longer;
  other.set_batch_size(64);
  EXPECT_EQ(has_more_to_do(other, journal).status().message(),
            "its checkpoints belong to another job than job.textproto: cannot "
            "change when a job continues: batch_size: 32 -> 64; to continue "
            "that job, undo the change");
  EXPECT_FALSE(*Command("train", {}).HasMoreToDo(journal));
}

TEST_F(LocalWorkersTest, OfAJobFileLeaveAResult) {
  const JobFileWorkers workers({"job.textproto", Job(), "", {}});
  const auto error = [&] {
    return std::string(
        workers.Summary(*directory_, proto::Journal()).status().message());
  };
  const std::string& result = directory_->result_path();
  const std::string log = directory_->path() + "/worker-0.log may say why";
  EXPECT_EQ(error(),
            "the job is done, but no worker has written its result to " +
                result + "; " + log);
  std::ofstream(directory_->result_path()) << R"({"job": )";
  EXPECT_THAT(error(), AllOf(StartsWith("the job is done, but " + result +
                                        " is damaged: the result is not a "
                                        "JSON object: "),
                             EndsWith("; " + log)));
  std::ofstream(directory_->result_path()) << R"({"job": "job"})";
  EXPECT_THAT(workers.Summary(*directory_, proto::Journal()).value(),
              HasSubstr("job: done\n"));
}

TEST_F(LocalWorkersTest, CommandHasItsPlaceInTheEnvironment) {
  const CommandWorkers workers = Command("/bin/python", {"train.py", "-v"});
  auto program = workers.ProgramFor(kSecond, cluster_, {}, *directory_);
  EXPECT_EQ(program.name, "worker-1");
  EXPECT_EQ(program.binary, "/bin/python");
  EXPECT_THAT(program.args, ElementsAre("train.py", "-v"));
  EXPECT_EQ(program.environment.size(), 3);
  EXPECT_EQ(program.environment.at("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(program.environment.at("PYTHONUNBUFFERED"), "1");
  const auto place = ResolveTask({}, program.environment.at("TF_CONFIG"));
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->task, kSecond);
  EXPECT_EQ(place->cluster.ToJson(), cluster_.ToJson());
  EXPECT_THAT(workers.Awaited(cluster_), ElementsAre(kFirst, kSecond));

  program = workers.ProgramFor(kSecond, cluster_, {"tls/worker-1", "/hosts/1"},
                               *directory_);
  EXPECT_EQ(program.environment.at("HOLDFAST_SAME_HOST_DIR"), "/hosts/1");
  EXPECT_EQ(program.environment.at("HOLDFAST_TLS_DIR"),
            std::filesystem::current_path().string() + "/tls/worker-1");
}

TEST_F(LocalWorkersTest, CommandKeepsTheUsersThreadsUnlessToldOtherwise) {
  setenv("OMP_NUM_THREADS", "3", 1);
  const auto kept = Command("train", {})
                        .ProgramFor(kFirst, cluster_, {}, *directory_)
                        .environment;
  EXPECT_EQ(kept.count("OMP_NUM_THREADS"), 0);
  const auto told = CommandWorkers({"train", {}, /*threads=*/2})
                        .ProgramFor(kFirst, cluster_, {}, *directory_)
                        .environment;
  EXPECT_EQ(told.at("OMP_NUM_THREADS"), "2");
}

TEST_F(LocalWorkersTest, CommandIsNamedAfterItsScript) {
  EXPECT_EQ(Command("/bin/python3", {"a/train.py", "x.py"}).job_name(),
            "train");
  EXPECT_EQ(Command("/a/train.py", {}).job_name(), "train");
  EXPECT_EQ(Command("/bin/python3", {"-m", "a.b.mnist", "-v"}).job_name(),
            "mnist");
  EXPECT_EQ(Command("python3", {"-m", "mnist"}).job_name(), "mnist");
  EXPECT_EQ(Command("python3", {"-m"}).job_name(), "python3");
  EXPECT_EQ(Command("bin/trainer", {"--job=a"}).job_name(), "trainer");
}

TEST_F(LocalWorkersTest, CommandTellsWhatWasSaved) {
  const CommandWorkers workers = Command("train", {});
  const std::string logs =
      absl::StrCat("  logs           ", directory_->path(), "\n");
  EXPECT_EQ(workers.Summary(*directory_, absl::NotFoundError("none")).value(),
            "train: done\n" + logs);
  proto::Journal journal;
  journal.add_checkpoints()->set_step(5);
  journal.add_checkpoints()->set_step(7);
  EXPECT_EQ(workers.Summary(*directory_, journal).value(),
            "train: done\n  steps          7, saved\n" + logs);
}

}  // namespace
}  // namespace holdfast
