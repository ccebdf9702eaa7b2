// SPDX-License-Identifier: Apache-2.0

// `holdfast bench` with real processes, as brief as possible: tests that it
// measures, not how fast anything is.

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::google::protobuf::Struct;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BenchTest : public ::testing::Test {
 protected:
  BenchTest() : folder_(FreshFolder()) {}

  // Runs `holdfast bench` with `args` and a scratch folder in folder_. Returns
  // its exit code, and sets output_ to its output.
  int Run(std::vector<std::string> args) {
    Program program(CommandLine(std::move(args)), {{"TMPDIR", folder_}});
    const int code = program.Wait();
    output_ = program.output();
    return code;
  }

  std::vector<std::string> CommandLine(std::vector<std::string> args) const {
    args.insert(args.begin(), {kHoldfast, "bench"});
    args.push_back("--json=" + json());
    return args;
  }

  std::string json() const { return folder_ + "/results.json"; }

  std::vector<Struct> Results() const {
    std::vector<Struct> results;
    std::ifstream file(json());
    for (std::string line; std::getline(file, line);) {
      EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(
                      line, &results.emplace_back())
                      .ok())
          << line;
    }
    return results;
  }

  // The files that are left in folder_ besides the results.
  std::vector<std::string> Leftovers() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.path() != json()) names.push_back(entry.path().filename());
    }
    return names;
  }

  // The command lines of running processes that contain `text`.
  static std::vector<std::string> CommandLinesWith(const std::string& text) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string line = ReadText(entry.path() / "cmdline");
      if (absl::StrContains(line, text)) found.push_back(line);
    }
    return found;
  }

  const std::string folder_;
  std::string output_;
};

TEST_F(BenchTest, Wire) {
  ASSERT_EQ(Run({"wire", "--sizes=16", "--shards=1", "--codecs=exact",
                 "--seconds=0.05", "--load=1kB"}),
            0)
      << output_;
  std::vector<std::string> ops;
  for (const Struct& result : Results()) {
    ops.push_back(StringIn(result, "op"));
    EXPECT_EQ(StringIn(result, "benchmark"), "wire");
    EXPECT_GE(NumberIn(result, "rounds"), 5);
    EXPECT_GT(NumberIn(result, "median_us"), 0);
    EXPECT_GE(NumberIn(result, "p99_us"), NumberIn(result, "median_us"));
  }
  EXPECT_THAT(ops, ElementsAre("push", "pull", "pushpull", "ticket", "tcp",
                               "memcpy", "control", "control"));
  EXPECT_THAT(output_, HasSubstr("pushpull"));
  EXPECT_THAT(Leftovers(), IsEmpty());
}

TEST_F(BenchTest, WireOfSeveralShards) {
  ASSERT_EQ(Run({"wire", "--tls", "--sizes=8,4kB", "--shards=3",
                 "--codecs=exact", "--seconds=0.02", "--ops=pushpull"}),
            0)
      << output_;
  ASSERT_EQ(Results().size(), 2);
  EXPECT_EQ(NumberIn(Results()[1], "bytes"), 4000);
  EXPECT_EQ(NumberIn(Results()[1], "shards"), 3);
}

TEST_F(BenchTest, Rows) {
  ASSERT_EQ(Run({"rows", "--row_length=1,16", "--ps=1,2", "--rows=1000",
                 "--ids=300", "--seconds=0.02"}),
            0)
      << output_;
  const std::vector<Struct> results = Results();
  ASSERT_EQ(results.size(), 4 * 7);
  std::vector<std::string> ops;
  for (const Struct& result : results) {
    const std::string op = StringIn(result, "op");
    if (ops.size() < 7) ops.push_back(op);
    EXPECT_EQ(StringIn(result, "benchmark"), "rows");
    EXPECT_EQ(NumberIn(result, "table_rows"), 1000);
    EXPECT_GE(NumberIn(result, "rounds"), 5);
    EXPECT_GT(NumberIn(result, "cpu_us"), 0);
    const double rows = NumberIn(result, "rows");
    if (op == "push" || op == "pull" || op == "pushpull") {
      // Among 300 ids drawn from 1000, many occur several times.
      EXPECT_GT(rows, 50);
      EXPECT_LT(rows, 250);
    } else {
      EXPECT_EQ(rows, 300);
    }
    EXPECT_NEAR(
        NumberIn(result, "rows_per_second") * NumberIn(result, "ns_per_row"),
        1e9, 1);
  }
  EXPECT_THAT(ops, ElementsAre("push", "pull", "pushpull", "assign", "sum",
                               "spread", "batch"));
  EXPECT_EQ(NumberIn(results[0], "ps"), 1);
  EXPECT_EQ(NumberIn(results[0], "row_length"), 1);
  EXPECT_EQ(NumberIn(results[27], "ps"), 2);
  EXPECT_EQ(NumberIn(results[27], "row_length"), 16);
  EXPECT_EQ(NumberIn(results[27], "bytes"), 300 * 16 * 4);
  EXPECT_THAT(Leftovers(), IsEmpty());
}

TEST_F(BenchTest, RowsOfOneOperation) {
  ASSERT_EQ(Run({"rows", "--tls", "--row_length=4", "--rows=70", "--ids=50",
                 "--zipf=0", "--seconds=0.02", "--ops=batch"}),
            0)
      << output_;
  ASSERT_EQ(Results().size(), 1);
  EXPECT_EQ(StringIn(Results()[0], "op"), "batch");
}

TEST_F(BenchTest, Scale) {
  ASSERT_EQ(
      Run({"scale", "--workers=2", "--ps=2", "--size=4kB", "--seconds=0.2"}), 0)
      << output_;
  std::vector<std::string> modes;
  for (const Struct& result : Results()) {
    modes.push_back(StringIn(result, "mode"));
    // A step of a synchronous job is one push and one pull by each of the two
    // workers.
    const double tensors = modes.back() == "synchronous" ? 4 : 2;
    EXPECT_NEAR(NumberIn(result, "gb_per_s") * 1e9,
                NumberIn(result, "steps_per_second") * tensors * 4000, 1);
    EXPECT_GE(NumberIn(result, "cpu_seconds_per_gb"), 0);
  }
  EXPECT_THAT(modes, ElementsAre("synchronous", "asynchronous"));
  EXPECT_THAT(Leftovers(), IsEmpty());
}

TEST_F(BenchTest, Step) {
  const std::string data = folder_ + "/data";
  std::filesystem::create_directories(data);
  WriteExamples(data);
  const std::string job = WriteJob(data, {});
  ASSERT_EQ(
      Run({"step", "--jobs=" + job, "--steps=12", "--rounds=2", "--ps=1"}), 0)
      << output_;
  const std::vector<Struct> results = Results();
  ASSERT_EQ(results.size(), 2);
  for (const Struct& result : results) {
    EXPECT_EQ(NumberIn(result, "rounds"), 2);
    EXPECT_EQ(NumberIn(result, "ps"), 1);
    EXPECT_EQ(NumberIn(result, "workers"), 2);
    EXPECT_GT(NumberIn(result, "steps_per_second"), 0);
  }
  EXPECT_EQ(StringIn(results[0], "mode"), "synchronous");
  EXPECT_EQ(StringIn(results[0], "digest").size(), 64);
  EXPECT_EQ(StringIn(results[1], "mode"), "asynchronous");
  EXPECT_THAT(Leftovers(), ElementsAre("data"));
}

// A script stands in for the daemons: each run ends with a different digest.
TEST_F(BenchTest, SynchronousRunsMustEndAlike) {
  const std::string daemon = folder_ + "/daemon";
  WriteText(daemon, R"(#!/bin/sh
for flag in "$@"; do
  case "$flag" in
    --result_file=*)
      echo "{\"job\": \"example\", \"digest\": \"process $$\"}" \
        >"${flag#--result_file=}" ;;
  esac
done)");
  std::filesystem::permissions(daemon, std::filesystem::perms::owner_all);
  WriteExamples(folder_);
  const std::string job = WriteJob(folder_, {});
  const std::string flags = absl::StrCat("--local_flags=--ps_binary=", daemon,
                                         " --worker_binary=", daemon);
  EXPECT_EQ(Run({"step", "--jobs=" + job, "--rounds=2", "--modes=synchronous",
                 flags}),
            1);
  EXPECT_THAT(output_, HasSubstr("end with the digests process"));
  EXPECT_EQ(Run({"step", "--jobs=" + job, "--rounds=2", "--modes=asynchronous",
                 flags}),
            0)
      << output_;
}

TEST_F(BenchTest, LeavesNothingWhenItIsInterrupted) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Program program(
        CommandLine({"wire", "--sizes=16,1MB,4MB,16MB,64MB", "--shards=2",
                     "--codecs=exact", "--seconds=0.3", "--ops=push"}),
        {{"TMPDIR", folder_}});
    // After the first point is measured, other clusters start and end.
    ASSERT_TRUE(program.ReadUntil("push")) << program.output();
    program.Signal(signal);
    EXPECT_EQ(program.Wait(), 130);
    EXPECT_THAT(program.output(), HasSubstr("interrupted"));
    EXPECT_THAT(CommandLinesWith(folder_ + "/holdfast-bench"), IsEmpty());
    EXPECT_THAT(Leftovers(), IsEmpty());
  }
}

TEST_F(BenchTest, TellsTheLastWordsOfADaemonThatFails) {
  EXPECT_EQ(Run({"wire", "--sizes=4kB", "--shards=1", "--seconds=600",
                 "--ps_flags=--memory_limit=1kB"}),
            1);
  EXPECT_THAT(output_, HasSubstr("The end of its log:"));
  EXPECT_THAT(output_, HasSubstr("memory"));
  EXPECT_THAT(Leftovers(), IsEmpty());
}

}  // namespace
}  // namespace holdfast
