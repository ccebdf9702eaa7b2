// SPDX-License-Identifier: Apache-2.0

// The daemons' logs as log collectors read them.

#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/exit_code.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// A job of one ps and one worker that does not end by itself.
class LogTest : public ::testing::Test {
 protected:
  LogTest() : folder_(FreshFolder()) {
    WriteExamples(folder_);
    const std::string job = WriteJob(folder_, {.steps = 1000000,
                                               .replicas_to_aggregate = 1,
                                               .total_num_replicas = 1});
    const std::vector<uint16_t> ports = TakePorts(2);
    const std::vector<std::string> cluster = {
        absl::StrCat("--ps_hosts=localhost:", ports[0]),
        absl::StrCat("--worker_hosts=localhost:", ports[1]), "--task_index=0"};
    ps_ = {kPsServer, absl::StrCat("--checkpoint_dir=", folder_, "/saved")};
    worker_ = {kPsWorker, "--job=" + job};
    ps_.insert(ps_.end(), cluster.begin(), cluster.end());
    worker_.insert(worker_.end(), cluster.begin(), cluster.end());
  }

  const std::string folder_;
  std::vector<std::string> ps_;
  std::vector<std::string> worker_;
};

// Each line is a JSON object that names its task.
void ExpectJson(const std::string& log, const std::string& task) {
  std::vector<std::string> with_step;
  for (const absl::string_view line :
       absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    google::protobuf::Struct fields;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(std::string(line), &fields)
            .ok())
        << line;
    std::vector<std::string> names;
    for (const auto& [name, value] : fields.fields()) names.push_back(name);
    EXPECT_THAT(names, IsSupersetOf({"time", "severity", "task", "file",
                                     "thread", "message"}))
        << line;
    EXPECT_EQ(StringIn(fields, "task"), task);
    EXPECT_THAT(StringIn(fields, "severity"), AnyOf("INFO", "WARNING")) << line;
    if (fields.fields().count("step") > 0) with_step.emplace_back(line);
  }
  EXPECT_THAT(with_step, Not(::testing::IsEmpty())) << log;
}

TEST_F(LogTest, IsJsonAndATaskThatIsToldToStopLogsNoError) {
  ps_.push_back("--log_format=json");
  worker_.push_back("--log_format=json");
  Program ps(ps_);
  Program worker(worker_);
  ASSERT_TRUE(worker.ReadUntil("\"message\":\"step ")) << worker.output();
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), kExitRestart) << worker.output();
  ps.Signal(SIGTERM);
  EXPECT_EQ(ps.Wait(), kExitRestart) << ps.output();
  ExpectJson(ps.output(), "/job:ps/task:0");
  ExpectJson(worker.output(), "/job:worker/task:0");
  EXPECT_THAT(ps.output(), HasSubstr("was told to stop by SIGTERM"));
}

TEST_F(LogTest, AsTextHasNoErrorOfATaskThatIsToldToStop) {
  Program ps(ps_);
  Program worker(worker_);
  ASSERT_TRUE(worker.ReadUntil("] step ")) << worker.output();
  ps.Signal(SIGTERM);
  EXPECT_EQ(ps.Wait(), kExitRestart) << ps.output();
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), kExitRestart) << worker.output();
  for (const Program* program : {&ps, &worker}) {
    for (const absl::string_view line :
         absl::StrSplit(program->output(), '\n', absl::SkipEmpty())) {
      EXPECT_FALSE(absl::StartsWith(line, "E")) << line;
    }
  }
}

TEST_F(LogTest, OfAWrongUseIsJsonToo) {
  ps_.push_back("--log_format=json");
  ps_.push_back("--lease=1ms");
  Program ps(ps_);
  EXPECT_EQ(ps.Wait(), kExitUsage);
  google::protobuf::Struct fields;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(ps.output(), &fields).ok())
      << ps.output();
  EXPECT_THAT(StringIn(fields, "message"), HasSubstr("flag --lease"));
  EXPECT_EQ(StringIn(fields, "severity"), "ERROR");
}

}  // namespace
}  // namespace holdfast
