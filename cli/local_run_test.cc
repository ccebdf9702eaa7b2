// SPDX-License-Identifier: Apache-2.0

// Scripts take the place of the daemons. tests/local/ has tests with real ones.
#include "cli/local_run.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/job/job_file.h"
#include "common/process/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Ends successfully once it is told to.
constexpr char kUntilTerm[] =
    "trap 'exit 0' TERM\nwhile :; do sleep 0.01; done";
// A ps that ends successfully when the job is done.
constexpr char kUntilResult[] = R"(
while ! [ -e "$(dirname $0)/run/result.json" ]; do sleep 0.01; done)";
// Ends only when it is killed.
constexpr char kForEver[] = "trap '' TERM\nwhile :; do sleep 0.01; done";
// A chief that writes a result to the file named by its flag.
constexpr char kTrains[] = R"(
for flag in "$@"; do
  case "$flag" in
    --result_file=*)
      echo '{"job": "example", "global_step": 7}' >"${flag#--result_file=}" ;;
  esac
done)";

// The number that follows `mark` in `text`.
std::string PortIn(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  if (at == text.npos) return "none";
  const size_t begin = at + mark.size();
  return text.substr(begin,
                     text.find_first_not_of("0123456789", begin) - begin);
}

class LocalRunTest : public ::testing::Test {
 protected:
  LocalRunTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    job_.job_file = "example.textproto";
    job_.job.set_name("example");
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

  // Returns the exit code of a run with these scripts as daemons. The output is
  // in out_ and err_.
  int Run(const std::string& ps, const std::string& worker) {
    options_.ps_binary = WriteScript("ps", ps);
    job_.binary = WriteScript("worker", worker);
    options_.kind = std::make_shared<JobFileWorkers>(job_);
    return Run();
  }

  // The same with commands as workers.
  int RunCommand(const std::string& ps, const std::string& worker) {
    options_.ps_binary = WriteScript("ps", ps);
    CommandWorkers::Options workers;
    workers.program = WriteScript("train", worker);
    workers.args = {"--steps=7"};
    options_.kind = std::make_shared<CommandWorkers>(workers);
    return Run();
  }

  int Run() {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RunLocally(options_);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  std::string ReadFile(const std::string& name) const {
    std::ifstream file(absl::StrCat(options_.run_dir, "/", name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  // A log without its headers.
  std::string SaidIn(const std::string& log) const {
    std::string said;
    for (const auto& line : absl::StrSplit(ReadFile(log), '\n')) {
      if (!line.empty() && !absl::StartsWith(line, "==== ")) {
        absl::StrAppend(&said, line, "\n");
      }
    }
    return said;
  }

  const std::string folder_;
  LocalRunOptions options_;
  JobFileWorkers::Options job_;
  std::string out_;
  std::string err_;
};

TEST_F(LocalRunTest, SaysTheResultWhenAllHaveEndedWell) {
  EXPECT_EQ(Run("", kTrains), kExitDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("example: done"), HasSubstr("7 in 0.0 s"),
                          HasSubstr(options_.run_dir + "/result.json")));
}

TEST_F(LocalRunTest, TellsWhereTheStatusPageIs) {
  options_.ps = 2;
  EXPECT_EQ(Run("echo \"$@\"", kTrains), kExitDone) << err_;
  const std::string port = PortIn(out_, "status page: http://127.0.0.1:");
  EXPECT_THAT(SaidIn("ps-0.log"),
              HasSubstr(absl::StrCat("--status_port=", port, "\n")));
  EXPECT_THAT(SaidIn("ps-1.log"), Not(HasSubstr("--status_port")));
  EXPECT_THAT(ReadFile("cluster.json"), Not(HasSubstr(":" + port)));
}

TEST_F(LocalRunTest, WithTlsTheStatusPageIsForTheOperator) {
  options_.tls = true;
  options_.status_port = 4711;
  EXPECT_EQ(Run("", kTrains), kExitDone) << err_;
  EXPECT_THAT(out_, HasSubstr(absl::StrCat(
                        "status page: https://127.0.0.1:4711/ (with the "
                        "certificate in ",
                        options_.run_dir, "/tls/operator-0)\n")));
}

TEST_F(LocalRunTest, CanDoWithoutAStatusPage) {
  options_.status_port.reset();
  EXPECT_EQ(Run("echo \"$@\"", kTrains), kExitDone) << err_;
  EXPECT_THAT(out_, Not(HasSubstr("status page")));
  EXPECT_THAT(SaidIn("ps-0.log"), Not(HasSubstr("--status_port")));
}

TEST_F(LocalRunTest, MissesTheResult) {
  EXPECT_EQ(Run("", ""), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("the job is done, but no worker has written its "
                              "result to "));
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

// A worker that dies twice, by a signal and with kExitRestart, then trains.
constexpr char kDiesTwice[] = R"(
mkdir -p "$0.lives"
life=$(ls "$0.lives" | wc -l)
touch "$0.lives/$life"
echo "life $life"
case $life in
  0) kill -9 $$ ;;
  1) exit 138 ;;
esac
)";

class RestartTest : public LocalRunTest {
 protected:
  RestartTest() {
    options_.workers = 1;
    options_.restarts.emplace();
    options_.restarts->first_pause = absl::Milliseconds(1);
    options_.restarts->longest_pause = absl::Milliseconds(1);
  }
};

TEST_F(RestartTest, StartsAgainWhatMayGoOn) {
  EXPECT_EQ(Run(kUntilResult, absl::StrCat(kDiesTwice, kTrains)), kExitDone)
      << err_;
  EXPECT_EQ(SaidIn("worker-0.log"), "life 0\nlife 1\nlife 2\n");
  EXPECT_THAT(
      out_,
      AllOf(HasSubstr("worker-0 (pid "),
            HasSubstr(") ended with signal 9 (Killed); restarts in 1ms (1 "
                      "of 10)\n"),
            HasSubstr(") ended with exit status 138; restarts in 1ms (2 of "
                      "10)\n"),
            HasSubstr("example: done")));
}

TEST_F(RestartTest, StartsAPsAgain) {
  EXPECT_EQ(Run(kDiesTwice, absl::StrCat(
                                R"(while ! [ -e "$(dirname $0)/ps.lives/2" ]
do sleep 0.01; done
)",
                                kTrains)),
            kExitDone)
      << err_;
  EXPECT_EQ(SaidIn("ps-0.log"), "life 0\nlife 1\nlife 2\n");
}

TEST_F(RestartTest, DoesNotUnlessToldTo) {
  options_.restarts.reset();
  EXPECT_EQ(Run(kUntilTerm, kDiesTwice), kExitFailed);
  EXPECT_THAT(err_,
              HasSubstr("ended with signal 9 (Killed). The end of its log"));
  EXPECT_EQ(SaidIn("worker-0.log"), "life 0\n");
}

TEST_F(RestartTest, EndsWhenOneHasDiedTooOften) {
  options_.restarts->most = 1;
  EXPECT_EQ(Run(kUntilTerm, kDiesTwice), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("worker-0 (pid "));
  EXPECT_THAT(err_, HasSubstr(") ended with exit status 138, after 1 restarts. "
                              "The end of its log, "));
  EXPECT_THAT(err_, HasSubstr(".log:\n  life 1\n")) << "of that life alone";
}

TEST_F(RestartTest, PausesAreShortAgainAfterALongRun) {
  options_.restarts->longest_pause = absl::Hours(1);
  options_.restarts->long_run = absl::ZeroDuration();
  EXPECT_EQ(Run(kUntilResult, absl::StrCat(kDiesTwice, kTrains)), kExitDone)
      << err_;
  EXPECT_THAT(out_, HasSubstr("restarts in 1ms (2 of 10)"));
}

TEST_F(RestartTest, FailureOfTheJobIsFinal) {
  for (const int code : {kExitFailed, kExitUsage}) {
    EXPECT_EQ(Run(kUntilTerm, absl::StrCat("echo why\nexit ", code)), code);
    EXPECT_THAT(err_, HasSubstr(absl::StrCat("ended with exit status ", code,
                                             ". The end of its log")));
  }
}

// The ps dies when the chief has written the result, ended and been reaped.
TEST_F(RestartTest, LeavesBeWhatDiesWhenTheJobIsDone) {
  EXPECT_EQ(Run(R"(run="$(dirname $0)/run"
while ! [ -e "$run/result.json" ] || ! [ -e "$run/worker-0.pid" ] ||
      kill -0 $(cat "$run/worker-0.pid")
do sleep 0.01; done
kill -9 $$)",
                kTrains),
            kExitDone)
      << err_;
  EXPECT_THAT(out_, HasSubstr("Killed), after the job was done"));
}

TEST_F(LocalRunTest, EndsWhatRunsWhenOneCannotBeStarted) {
  job_.binary = folder_ + "/none";
  options_.kind = std::make_shared<JobFileWorkers>(job_);
  options_.ps_binary = WriteScript("ps", kForEver);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunLocally(options_), kExitFailed);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(absl::StrCat("cannot run ", folder_, "/none")));
}

TEST_F(LocalRunTest, KeepsTheResultOfAnEarlierRun) {
  EXPECT_EQ(Run("echo first", kTrains), kExitDone) << err_;
  const std::string result = ReadFile("result.json");
  EXPECT_EQ(Run("echo second", kTrains), kExitUsage);
  EXPECT_THAT(err_, AllOf(HasSubstr("run/result.json, which is kept"),
                          HasSubstr("give another --run_dir")));
  EXPECT_EQ(ReadFile("result.json"), result);
  EXPECT_EQ(SaidIn("ps-0.log"), "first\n");
}

TEST_F(LocalRunTest, AddsToTheLogsOfAnEarlierRun) {
  options_.ps_flags = {"--lease=3s"};
  EXPECT_EQ(Run("echo first", "exit 1"), kExitFailed);
  EXPECT_EQ(Run("echo second", kTrains), kExitDone) << err_;
  EXPECT_THAT(
      ReadFile("ps-0.log"),
      ::testing::MatchesRegex(
          "==== [-+:0-9T]* [^ ]*/ps --job_name=ps [^\n]*--lease=3s\nfirst\n"
          "==== [-+:0-9T]* [^ ]*/ps --job_name=ps [^\n]*--lease=3s\nsecond\n"));
}

// Tasks that leave report to the coordinator, which is ps 0.
TEST_F(LocalRunTest, StopsTheCoordinatorLast) {
  options_.ps = 2;
  options_.checkpoint_dir = folder_ + "/saved";
  options_.resume_command = "holdfast local --again";
  constexpr char kTellsItsEnd[] = R"(
name=ps; for flag in "$@"; do
  case "$flag" in
    --job_name=worker) name=worker ;;
    --task_index=0) index=0 ;;
    --task_index=1) index=1 ;;
  esac
done
trap 'echo $name-$index >>"$(dirname "$0")/ends"; exit 0' TERM
while :; do sleep 0.01; done)";
  constexpr char kDies[] = R"(
case "$*" in *--task_index=1*) sleep 0.2; exit 138 ;; esac)";
  EXPECT_EQ(Run(kTellsItsEnd, absl::StrCat(kDies, kTellsItsEnd)), kExitFailed);
  std::ifstream file(folder_ + "/ends");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}),
            "worker-0\nps-1\nps-0\n");
  EXPECT_THAT(err_, HasSubstr("holdfast: nothing was saved (the job had not "
                              "started); to start again:\n  holdfast local "
                              "--again\n"));
}

TEST_F(LocalRunTest, DoesNotRunAJobThatIsDone) {
  options_.checkpoint_dir = folder_ + "/saved";
  proto::Job job;
  job.set_name("example");
  job.set_batch_size(32);
  job.set_steps(40);
  job_.job = job;
  const auto saved =
      CheckpointDirectory::Open(options_.checkpoint_dir, PosixFileSystem());
  ASSERT_TRUE(saved.ok()) << saved.status();
  proto::Journal journal;
  journal.set_directory_nonce(1);
  journal.set_job_digest(JobDigest(job));
  journal.mutable_declaration()->mutable_job()->set_job_file(SharedJob(job));
  journal.add_checkpoints()->set_step(40);
  ASSERT_EQ(saved->WriteJournal(journal), absl::OkStatus());
  EXPECT_EQ(Run("", kTrains), kExitDone) << err_;
  EXPECT_THAT(out_, HasSubstr("example: done"));

  journal.set_finished(true);
  ASSERT_EQ(saved->WriteJournal(journal), absl::OkStatus());
  EXPECT_EQ(Run("exit 1", "exit 1"), kExitDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("example: is already done"),
                          HasSubstr("result is in " + options_.run_dir),
                          HasSubstr("another --run_dir and --checkpoint_dir")));
  EXPECT_TRUE(std::filesystem::exists(options_.run_dir + "/result.json"));

  const std::string result = ReadFile("result.json");
  proto::Job other = job;
  other.set_batch_size(64);
  job_.job = other;
  EXPECT_EQ(Run("exit 1", "exit 1"), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("batch_size: 32 -> 64"));
  EXPECT_EQ(ReadFile("result.json"), result);

  job.set_steps(80);
  job_.job = job;
  EXPECT_EQ(Run("", kTrains), kExitDone) << err_;
  EXPECT_EQ(ReadFile("result-step00000040.json"), result);
}

TEST_F(LocalRunTest, GivesEachDaemonItsFlags) {
  options_.checkpoint_dir = "/none/saved";
  options_.ps_flags = {"--lease=3s"};
  options_.status_port = 4711;
  job_.flags = {"--seed=5"};
  Run("echo $@", "echo $@");
  const auto log = [&](const std::string& daemon) {
    std::ifstream file(absl::StrCat(options_.run_dir, "/", daemon, ".log"));
    std::string line;
    std::getline(file, line);
    std::getline(file, line);  // skips the header
    return line;
  };
  const std::string spec =
      absl::StrCat(" --cluster_spec=", options_.run_dir, "/cluster.json");
  EXPECT_EQ(log("ps-0"),
            absl::StrCat("--job_name=ps --task_index=0", spec,
                         " --checkpoint_dir=/none/saved --status_port=4711 "
                         "--lease=3s"));
  EXPECT_EQ(log("worker-0"),
            absl::StrCat("--job_name=worker --task_index=0", spec,
                         " --job=example.textproto --result_file=",
                         options_.run_dir, "/result.json --seed=5"));
  EXPECT_EQ(log("worker-1"),
            absl::StrCat("--job_name=worker --task_index=1", spec,
                         " --job=example.textproto --result_file=",
                         options_.run_dir, "/result.json --seed=5"));
}

TEST_F(LocalRunTest, ACollocatedPsSharesMemoryWithItsWorkerAlone) {
  options_.ps = 2;
  options_.collocated = true;
  const auto flag = [&](const std::string& daemon) {
    std::ifstream file(absl::StrCat(options_.run_dir, "/", daemon, ".log"));
    const std::string log((std::istreambuf_iterator<char>(file)), {});
    const size_t begin = log.find("--same_host_dir=");
    return begin == log.npos
               ? "none"
               : log.substr(begin, log.find_first_of(" \n", begin) - begin);
  };
  Run("echo $@", "echo $@");
  for (const int host : {0, 1}) {
    const std::string folder = absl::StrCat(options_.run_dir, "/hosts/", host);
    for (const char* job : {"ps-", "worker-"}) {
      EXPECT_EQ(flag(absl::StrCat(job, host)), "--same_host_dir=" + folder);
    }
    EXPECT_EQ(std::filesystem::status(folder).permissions(),
              std::filesystem::perms::owner_all);
  }
}

using CommandTest = LocalRunTest;

// A ps that ends after the workers.
constexpr char kUntilWorkersEnd[] = R"(
run="$(dirname $0)/run"
for worker in 0 1; do
  while ! [ -e "$run/worker-$worker.pid" ]; do sleep 0.01; done
  while kill -0 $(cat "$run/worker-$worker.pid"); do sleep 0.01; done
done)";

TEST_F(CommandTest, TellsEachItsPlaceAndShowsTheFirst) {
  EXPECT_EQ(RunCommand(kUntilWorkersEnd, R"(echo "$@ $TF_CONFIG")"), kExitDone)
      << err_;
  for (const int index : {0, 1}) {
    const std::string said = absl::StrCat(
        "--steps=7 {\"cluster\": ", ReadFile("cluster.json"),
        ", \"task\": {\"type\": \"worker\", \"index\": ", index, "}}\n");
    EXPECT_EQ(SaidIn(absl::StrCat("worker-", index, ".log")), said);
    EXPECT_EQ(absl::StrContains(out_, said), index == 0) << out_;
  }
  EXPECT_THAT(out_, HasSubstr("train: done\n"));
}

TEST_F(CommandTest, WaitsForTheSlowest) {
  options_.drain_timeout = absl::Milliseconds(1);
  EXPECT_EQ(RunCommand(kUntilWorkersEnd, R"(
case "$TF_CONFIG" in
  *'"index": 1}'*)
    first="$(dirname $0)/run/worker-0.pid"
    while ! [ -e "$first" ] || kill -0 $(cat "$first"); do sleep 0.01; done
    sleep 0.1 ;;
esac)"),
            kExitDone)
      << err_;
}

TEST_F(CommandTest, StartsAgainWhatMayGoOn) {
  options_.workers = 1;
  options_.restarts.emplace();
  options_.restarts->first_pause = absl::Milliseconds(1);
  options_.restarts->longest_pause = absl::Milliseconds(1);
  EXPECT_EQ(RunCommand(R"(
while ! [ -e "$(dirname $0)/train.lives/2" ]; do sleep 0.01; done)",
                       kDiesTwice),
            kExitDone)
      << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("life 0\n"), HasSubstr("life 2\n")));
}

// There is no job left with which it could go on.
TEST_F(CommandTest, OneThatDiesBehindTheJobFailsTheRun) {
  options_.workers = 1;
  options_.restarts.emplace();
  EXPECT_EQ(RunCommand("", R"(
ps="$(dirname $0)/run/ps-0.pid"
while ! [ -e "$ps" ] || kill -0 $(cat "$ps"); do sleep 0.01; done
kill -9 $$)"),
            kExitFailed);
  EXPECT_THAT(err_, AllOf(HasSubstr("the job is done, but worker-0 (pid "),
                          HasSubstr(") ended with signal 9 (Killed)")));
}

TEST_F(CommandTest, OrdinaryFailureIsFinal) {
  options_.restarts.emplace();
  EXPECT_EQ(RunCommand(kUntilTerm, "echo 'ValueError: no such file'; exit 1"),
            kExitFailed);
  EXPECT_THAT(err_, HasSubstr("log:\n  ValueError: no such file"));
}

}  // namespace
}  // namespace holdfast
