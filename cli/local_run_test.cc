// Scripts stand in for the daemons. With real ones: tests/local/.
#include "cli/local_run.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Ends well, once it has been told to.
constexpr char kUntilTerm[] =
    "trap 'exit 0' TERM\nwhile :; do sleep 0.01; done";
// Ends when it is killed.
constexpr char kForEver[] = "trap '' TERM\nwhile :; do sleep 0.01; done";
// A chief writes a result to the file that its flag names.
constexpr char kTrains[] = R"(
for flag in "$@"; do
  case "$flag" in
    --result_file=*)
      echo '{"job": "example", "global_step": 7}' >"${flag#--result_file=}" ;;
  esac
done)";

class LocalRunTest : public ::testing::Test {
 protected:
  LocalRunTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    options_.job_file = "example.textproto";
    options_.job_name = "example";
    options_.ps = 1;
    options_.workers = 2;
    options_.run_dir = folder_ + "/run";
  }

  std::string WriteScript(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }

  // The exit code of a run with these scripts as daemons. What it says is in
  // out_ and err_.
  int Run(const std::string& ps, const std::string& worker) {
    options_.ps_binary = WriteScript("ps", ps);
    options_.worker_binary = WriteScript("worker", worker);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RunLocally(options_);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  const std::string folder_;
  LocalRunOptions options_;
  std::string out_;
  std::string err_;
};

TEST_F(LocalRunTest, SaysTheResultWhenAllHaveEndedWell) {
  EXPECT_EQ(Run("", kTrains), kExitDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("example: done"), HasSubstr("7 in 0.0 s"),
                          HasSubstr(options_.run_dir + "/result.json")));
}

TEST_F(LocalRunTest, MissesTheResult) {
  EXPECT_EQ(Run("", ""), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("result.json is not there"));
}

TEST_F(LocalRunTest, TellsTheLastWordsOfOneThatFails) {
  options_.workers = 1;
  EXPECT_EQ(Run(kUntilTerm, "echo first; echo last >&2; exit 3"), kExitFailed);
  EXPECT_THAT(err_, AllOf(HasSubstr("worker-0 (pid "),
                          HasSubstr(") ended with exit status 3."),
                          HasSubstr("worker-0.log:\n  first\n  last\n")));
}

TEST_F(LocalRunTest, KillsOneThatDoesNotListen) {
  options_.workers = 1;
  options_.stop_timeout = absl::Milliseconds(100);
  EXPECT_EQ(Run(kForEver, "exit 3"), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("worker-0 (pid "));
}

TEST_F(LocalRunTest, NamesAndKillsOneThatStaysWhenTheJobIsDone) {
  options_.drain_timeout = absl::Milliseconds(100);
  EXPECT_EQ(Run(kForEver, kTrains), kExitFailed);
  EXPECT_THAT(err_,
              HasSubstr("the job is done, but ps-0 did not end in 100ms"));
}

TEST_F(LocalRunTest, EndsWhatRunsWhenOneCannotBeStarted) {
  options_.worker_binary = folder_ + "/none";
  options_.ps_binary = WriteScript("ps", kForEver);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunLocally(options_), kExitFailed);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(absl::StrCat("cannot run ", folder_, "/none")));
}

TEST_F(LocalRunTest, GivesEachDaemonItsFlags) {
  options_.ps_flags = {"--lease=3s"};
  options_.worker_flags = {"--seed=5"};
  Run("echo $@", "echo $@");
  const auto log = [&](const std::string& daemon) {
    std::ifstream file(absl::StrCat(options_.run_dir, "/", daemon, ".log"));
    std::string line;
    std::getline(file, line);
    return line;
  };
  const std::string spec =
      absl::StrCat(" --cluster_spec=", options_.run_dir, "/cluster.json");
  EXPECT_EQ(log("ps-0"),
            absl::StrCat("--job_name=ps --task_index=0", spec, " --lease=3s"));
  EXPECT_EQ(log("worker-0"),
            absl::StrCat("--job_name=worker --task_index=0", spec,
                         " --job=example.textproto --result_file=",
                         options_.run_dir, "/result.json --seed=5"));
  EXPECT_EQ(log("worker-1"),
            absl::StrCat("--job_name=worker --task_index=1", spec,
                         " --job=example.textproto --seed=5"));
}

}  // namespace
}  // namespace holdfast
