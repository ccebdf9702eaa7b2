// SPDX-License-Identifier: Apache-2.0

// The daemons without `holdfast local`: any form of the ClusterSpec, started in
// any order.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class ByHandTest : public ::testing::Test {
 protected:
  ByHandTest() : folder_(FreshFolder()) {
    WriteExamples(folder_);
    job_ = "--job=" + WriteJob(folder_, {});
    result_ = "--result_file=" + folder_ + "/result.json";
    const std::vector<uint16_t> ports = TakePorts(4);
    for (const uint16_t port : ports) {
      addresses_.push_back(absl::StrCat("localhost:", port));
    }
  }

  void Start(const std::vector<std::string>& args,
             const std::map<std::string, std::string>& environment = {}) {
    programs_.push_back(std::make_unique<Program>(args, environment));
  }

  void ExpectAllEndWell() {
    for (const auto& program : programs_) {
      EXPECT_EQ(program->Wait(), 0) << program->output();
    }
    EXPECT_EQ(NumberIn(ReadResult(folder_ + "/result.json"), "global_step"),
              40);
  }

  const std::string folder_;
  std::string job_;
  std::string result_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(ByHandTest, HostsInFlagsWorkersFirst) {
  const std::string ps_hosts =
      absl::StrCat("--ps_hosts=", addresses_[0], ",", addresses_[1]);
  const std::string worker_hosts =
      absl::StrCat("--worker_hosts=", addresses_[2], ",", addresses_[3]);
  // Each task reports that it waits for the tasks that are not started yet.
  Start({kPsWorker, job_, ps_hosts, worker_hosts, "--job_name=worker",
         "--task_index=1"});
  EXPECT_TRUE(programs_.back()->ReadUntil("waiting for"));
  Start({kPsServer, ps_hosts, worker_hosts, "--job_name=ps", "--task_index=1"});
  Start({kPsServer, ps_hosts, worker_hosts, "--job_name=ps", "--task_index=0"});
  EXPECT_TRUE(programs_.front()->ReadUntil("/job:worker/task:0"));
  Start({kPsWorker, job_, ps_hosts, worker_hosts, result_, "--job_name=worker",
         "--task_index=0"});
  ExpectAllEndWell();
}

TEST_F(ByHandTest, TfConfigWithAChiefAndAnEvaluator) {
  const std::string cluster = absl::StrFormat(
      R"("cluster": {"ps": ["%s"], "chief": ["%s"], "worker": {"0": "%s"},
                     "evaluator": ["%s"]})",
      addresses_[0], addresses_[1], addresses_[2], addresses_[3]);
  const auto environment = [&](const std::string& type) {
    return std::map<std::string, std::string>{
        {"TF_CONFIG",
         absl::StrFormat(R"({%s, "task": {"type": "%s", "index": 0}})", cluster,
                         type)}};
  };
  Start({kPsWorker, job_}, environment("worker"));
  Start({kPsWorker, job_, result_}, environment("chief"));
  Start({kPsServer}, environment("ps"));
  ExpectAllEndWell();

  Program evaluator({kPsWorker, job_}, environment("evaluator"));
  EXPECT_EQ(evaluator.Wait(), 2);
  EXPECT_THAT(evaluator.output(), HasSubstr("/job:evaluator/task:0"));
}

TEST_F(ByHandTest, ClusterSpecInline) {
  const std::string spec = absl::StrFormat(
      R"(--cluster_spec={"ps": ["%s"], "worker": ["%s", "%s"]})", addresses_[0],
      addresses_[1], addresses_[2]);
  Start({kPsServer, spec, "--task_index=0"});
  Start({kPsWorker, job_, spec, result_, "--task_index=0"});
  Start({kPsWorker, job_, spec, "--task_index=1"});
  ExpectAllEndWell();
}

TEST_F(ByHandTest, WorkersWhoseJobsDifferAreRefused) {
  const std::string ps_hosts = "--ps_hosts=" + addresses_[0];
  const std::string worker_hosts =
      absl::StrCat("--worker_hosts=", addresses_[1], ",", addresses_[2]);
  Start({kPsServer, ps_hosts, worker_hosts, "--task_index=0"});
  Start({kPsWorker, job_, ps_hosts, worker_hosts, "--task_index=0"});
  EXPECT_TRUE(programs_.back()->ReadUntil("waiting for"));
  Program other(
      {kPsWorker, job_, "--seed=2", ps_hosts, worker_hosts, "--task_index=1"});
  EXPECT_EQ(other.Wait(), 2);
  EXPECT_THAT(other.output(), HasSubstr("/job:worker/task:0"));
  EXPECT_THAT(other.output(), HasSubstr("/job:worker/task:1"));
}

// The second worker is refused for good, because starting it again does not
// help, but only after the first has had time to shut down.
TEST_F(ByHandTest, AWorkerThatIsThereTwiceIsRefused) {
  const std::string ps_hosts = "--ps_hosts=" + addresses_[0];
  const std::string worker_hosts =
      absl::StrCat("--worker_hosts=", addresses_[1], ",", addresses_[2]);
  Start({kPsServer, ps_hosts, worker_hosts, "--task_index=0", "--lease=1s"});
  Start({kPsWorker, job_, ps_hosts, worker_hosts, "--task_index=0"});
  EXPECT_TRUE(programs_.back()->ReadUntil("waiting for"));
  const absl::Time begun = SteadyNow();
  Program twin({kPsWorker, job_, ps_hosts, worker_hosts, "--task_index=0"});
  EXPECT_EQ(twin.Wait(), 2);
  EXPECT_GE(SteadyNow() - begun, absl::Seconds(1));
  EXPECT_THAT(twin.output(),
              HasSubstr("the place of /job:worker/task:0 is taken by"));
}

}  // namespace
}  // namespace holdfast
