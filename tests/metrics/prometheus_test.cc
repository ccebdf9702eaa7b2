// SPDX-License-Identifier: Apache-2.0

// A job of real processes, monitored by a real Prometheus with our alerts; and
// Prometheus's own checker on the text that each daemon serves.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "re2/re2.h"
#include "tests/faults/cluster.h"
#include "tests/integration/http_get.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr char kPrometheus[] = "/usr/bin/prometheus";
constexpr char kPromtool[] = "/usr/bin/promtool";

// The output and the exit code of a shell command.
struct Outcome {
  int code = -1;
  std::string output;
};
Outcome Shell(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    outcome.output.append(buffer, n);
  }
  outcome.code = pclose(pipe);
  return outcome;
}

// A program that is killed when the test ends.
class Child {
 public:
  Child(const std::vector<std::string>& args, const std::string& log)
      : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (std::freopen(log.c_str(), "w", stdout) == nullptr) _exit(126);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    std::vector<char*> argv;
    for (const std::string& arg : args) {
      argv.push_back(const_cast<char*>(arg.c_str()));
    }
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  const pid_t pid_;
};

class PrometheusTest : public ::testing::Test {
 protected:
  PrometheusTest() : folder_(FreshFolder()), cluster_(MakeOptions()) {}

  // The job outlasts the test.
  TaskCluster::Options MakeOptions() {
    SmallJob job;
    job.steps = 10'000'000;
    job.more = "checkpoints { every_steps: 50 }\n";
    WriteExamples(folder_);
    TaskCluster::Options options;
    options.folder = folder_;
    options.job_file = WriteJob(folder_, job);
    options.worker_binary = kPsWorker;
    options.ps_flags = {"--status_port=0", "--lease=1s"};
    options.worker_flags = {"--status_port=0"};
    return options;
  }

  void Start() {
    cluster_.StartAll();
    ASSERT_TRUE(cluster_.AdvanceUntil(
        [&] { return cluster_.status().durable_step() > 0; }, kLimit))
        << cluster_.Describe();
    for (const std::string& name : cluster_.names()) {
      int port = 0;
      ASSERT_TRUE(RE2::PartialMatch(
          cluster_.log(name),
          R"((?:serves its status|serves --status_port).* on port (\d+))",
          &port))
          << cluster_.log(name);
      ports_[name] = port;
    }
  }

  std::string Metrics(const std::string& name) {
    return HttpGet(ports_[name], "/metrics").body;
  }

  const std::string folder_;
  TaskCluster cluster_;
  std::map<std::string, uint16_t> ports_;
};

// The value of a series in the text; absent if the series is not there.
std::optional<double> ValueIn(const std::string& text,
                              const std::string& series) {
  std::string value;
  double number;
  if (RE2::PartialMatch(
          text, absl::StrCat("(?m)^", RE2::QuoteMeta(series), " (\\S+)$"),
          &value) &&
      absl::SimpleAtod(value, &number)) {
    return number;
  }
  return std::nullopt;
}

TEST_F(PrometheusTest, PromtoolFindsNothingWrong) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const std::string& name : cluster_.names()) {
    const std::string text = Metrics(name);
    EXPECT_THAT(text, HasSubstr("holdfast_build_info{task=")) << name;
    const std::string path = absl::StrCat(folder_, "/", name, ".metrics");
    WriteText(path, text);
    const Outcome checked =
        Shell(absl::StrCat(kPromtool, " check metrics <", path));
    EXPECT_EQ(checked.code, 0) << name;
    EXPECT_EQ(checked.output, "") << name;
  }
}

// While the workers are paused, only ages change.
TEST_F(PrometheusTest, TheNumbersAreThoseOfTheStatus) {
  ASSERT_NO_FATAL_FAILURE(Start());
  cluster_.Signal("worker-0", SIGSTOP);
  cluster_.Signal("worker-1", SIGSTOP);
  // Waits until the step under way is committed.
  uint64_t step;
  do {
    step = cluster_.status().global_step();
    cluster_.AdvanceFor(absl::Milliseconds(300));
  } while (cluster_.status().global_step() != step);
  const std::string text = Metrics("ps-0");
  const proto::GetStatusResponse status = cluster_.status();
  EXPECT_EQ(ValueIn(text, "holdfast_job_global_step"), status.global_step());
  EXPECT_EQ(ValueIn(text, "holdfast_job_durable_step"), status.durable_step());
  EXPECT_EQ(ValueIn(text, "holdfast_job_examples"), status.examples());
  EXPECT_EQ(ValueIn(text, "holdfast_job_contributions{verdict=\"accepted\"}"),
            status.pushes().accepted());
  EXPECT_EQ(ValueIn(text, "holdfast_job_checkpoints_written_total"),
            status.checkpoints().written());
  EXPECT_EQ(ValueIn(text, "holdfast_job_generation"), status.generation());
  // A shard's commits are the job's steps, since this is its first generation.
  EXPECT_EQ(ValueIn(text, "holdfast_shard_updates_total"), step);
  EXPECT_EQ(ValueIn(Metrics("ps-1"), "holdfast_shard_updates_total"), step);
  EXPECT_GT(ValueIn(text, "holdfast_shard_memory_bytes{kind=\"values\"}"), 0);
  EXPECT_GT(
      ValueIn(text, "holdfast_shard_received_bytes_total{encoding=\"exact\"}"),
      0);
}

TEST_F(PrometheusTest, APrometheusScrapesAJob) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const uint16_t port = TakePorts(1).front();
  std::vector<std::string> targets;
  for (const auto& [name, of] : ports_) {
    targets.push_back(absl::StrCat("\"127.0.0.1:", of, "\""));
  }
  const std::string rules = absl::StrCat(std::getenv("TEST_SRCDIR"), "/",
                                         std::getenv("TEST_WORKSPACE"),
                                         "/deploy/prometheus/alerts.yaml");
  const std::string config = absl::StrCat(folder_, "/prometheus.yaml");
  WriteText(config, absl::StrCat("global: {scrape_interval: 500ms, "
                                 "evaluation_interval: 500ms}\n"
                                 "rule_files: [\"",
                                 rules,
                                 "\"]\n"
                                 "scrape_configs:\n"
                                 "  - job_name: holdfast\n"
                                 "    static_configs:\n"
                                 "      - targets: [",
                                 absl::StrJoin(targets, ", "), "]\n"));
  const std::string log = absl::StrCat(folder_, "/prometheus.log");
  const Child prometheus(
      {kPrometheus, absl::StrCat("--config.file=", config),
       absl::StrCat("--storage.tsdb.path=", folder_, "/prometheus"),
       absl::StrCat("--web.listen-address=127.0.0.1:", port)},
      log);
  // Returns the value of an expression (URL-encoded) that has one.
  const auto query = [&](const std::string& expression) {
    const std::string answer =
        HttpGet(port, absl::StrCat("/api/v1/query?query=", expression)).body;
    std::string value;
    double number = 0;
    return RE2::PartialMatch(answer, R"re("value":\[[\d.]+,"([^"]+)"\])re",
                             &value) &&
                   absl::SimpleAtod(value, &number)
               ? number
               : 0;
  };
  EXPECT_TRUE(cluster_.AdvanceUntil(
      [&] {
        return query("sum(up)") == 4 && query("holdfast_job_global_step") > 0 &&
               query("sum(rate(holdfast_worker_steps_total%5B5s%5D))") > 0 &&
               query("count(holdfast_shard_memory_limit_bytes)") == 2;
      },
      kLimit))
      << ReadText(log) << cluster_.Describe();
  EXPECT_THAT(HttpGet(port, "/api/v1/rules").body,
              HasSubstr("HoldfastCheckpointsFailing"));
  // Worker 1 dies and does not come back.
  cluster_.Abandon("worker-1");
  EXPECT_TRUE(cluster_.AdvanceUntil(
      [&] {
        return query("sum(up)") == 3 &&
               query("ALERTS%7Balertname=%22HoldfastTaskDown%22%7D") > 0;
      },
      kLimit))
      << ReadText(log);
}

TEST(AlertsTest, FireWhenTheyShould) {
  const Outcome tested = Shell(
      absl::StrCat(kPromtool,
                   " test rules $TEST_SRCDIR/$TEST_WORKSPACE/deploy/prometheus/"
                   "alerts_test.yaml"));
  EXPECT_EQ(tested.code, 0) << tested.output;
  EXPECT_THAT(tested.output, HasSubstr("SUCCESS"));
}

}  // namespace
}  // namespace holdfast
