// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_report.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

proto::BenchmarkResult Result(const char* text) {
  proto::BenchmarkResult result;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &result));
  return result;
}

constexpr char kPush[] = R"pb(
  benchmark: "wire"
  op: "push"
  codec: "exact"
  bytes: 4000000000
  shards: 2
  median_us: 1234.56
  p90_us: 2000
  p99_us: 3000.04
  gb_per_s: 0.81
  rounds: 77
  cpu_us: 2222.22
)pb";

TEST(BenchReportTest, JsonHasNumbersByTheNamesOfTheProto) {
  const std::string json = BenchJson(Result(kPush));
  EXPECT_THAT(json, Not(HasSubstr("\n")));
  google::protobuf::Struct object;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &object).ok());
  const auto& fields = object.fields();
  EXPECT_EQ(fields.at("op").string_value(), "push");
  EXPECT_EQ(fields.at("bytes").number_value(), 4e9);
  EXPECT_EQ(fields.at("median_us").number_value(), 1234.56);
  EXPECT_EQ(fields.at("gb_per_s").number_value(), 0.81);
  EXPECT_EQ(fields.count("steps_per_second"), 0);
}

TEST(BenchReportTest, ZeroIsNotAbsent) {
  const auto result = Result(R"pb(benchmark: "wire" op: "control" bytes: 0)pb");
  EXPECT_THAT(BenchJson(result), HasSubstr(R"("bytes":0)"));
}

TEST(BenchReportTest, JsonIsReadAgain) {
  const proto::BenchmarkResult result = Result(kPush);
  const auto read = ParseBenchJson(BenchJson(result));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), result.SerializeAsString());
  EXPECT_THAT(ParseBenchJson("push").status().message(), HasSubstr("push"));
}

TEST(BenchReportTest, TableOfOperations) {
  EXPECT_EQ(BenchTableHead("wire"),
            "op        codec          bytes  shards    median us       p90 us "
            "      p99 us     GB/s     CPU us   rounds");
  EXPECT_EQ(BenchTableRow(Result(kPush)),
            "push      exact     4000000000       2       1234.6       2000.0 "
            "      3000.0   0.8100     2222.2       77");
  EXPECT_EQ(BenchTableRow(Result(R"pb(benchmark: "wire" op: "x")pb")),
            "x         -                  -       -            -            - "
            "           -        -          -        -");
}

TEST(BenchReportTest, TableOfRows) {
  EXPECT_EQ(
      BenchTableHead("rows"),
      "op          ps length  table rows    rows  median us     p90 us    "
      " p99 us     rows/s   ns/row     GB/s CPU ns/row  rounds");
  EXPECT_EQ(
      BenchTableRow(Result(R"pb(
        benchmark: "rows"
        op: "pull"
        bytes: 1676288
        median_us: 5238.4
        p90_us: 6000
        p99_us: 7000.04
        gb_per_s: 0.32
        rounds: 190
        ps: 2
        cpu_us: 7857.6
        row_length: 16
        table_rows: 10000000
        rows: 26192
        rows_per_second: 5000000
        ns_per_row: 200
        cpu_ns_per_row: 300
      )pb")),
      "pull         2     16    10000000   26192     5238.4     6000.0    "
      " 7000.0    5000000    200.0   0.3200      300.0     190");
}

TEST(BenchReportTest, TableOfTraining) {
  EXPECT_EQ(BenchTableHead("step"),
            "job                          mode            ps  workers    "
            "steps/s      least       most   examples/s   rounds");
  EXPECT_EQ(BenchTableRow(Result(R"pb(
              benchmark: "step"
              job: "mlp"
              mode: "synchronous"
              ps: 1
              workers: 2
              steps_per_second: 77.54
              least_steps_per_second: 70
              most_steps_per_second: 80.5
              examples_per_second: 15508.4
              rounds: 5
            )pb")),
            "mlp                          synchronous      1        2       "
            "77.5       70.0       80.5        15508        5");
}

TEST(BenchReportTest, TableOfScaling) {
  EXPECT_EQ(BenchTableHead("scale"),
            "mode            ps  workers      bytes    steps/s     GB/s   CPU "
            "s/GB");
  EXPECT_EQ(BenchTableRow(Result(R"pb(
              benchmark: "scale"
              mode: "asynchronous"
              ps: 4
              workers: 16
              bytes: 4000000
              steps_per_second: 300
              gb_per_s: 2.4
              cpu_seconds_per_gb: 0.625
            )pb")),
            "asynchronous     4       16    4000000      300.0     2.40       "
            "0.62");
}

TEST(BenchReportTest, WritesALineForEachResultAndAHeadForEachTable) {
  const std::string path = ::testing::TempDir() + "/results.json";
  ::testing::internal::CaptureStdout();
  {
    const auto report = BenchReport::Open(path);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE((*report)->Add(Result(kPush)).ok());
    EXPECT_TRUE((*report)->Add(Result(kPush)).ok());
    EXPECT_TRUE((*report)->Add(Result(R"pb(benchmark: "scale")pb")).ok());
  }
  EXPECT_EQ(
      ::testing::internal::GetCapturedStdout(),
      absl::StrCat(BenchTableHead("wire"), "\n", BenchTableRow(Result(kPush)),
                   "\n", BenchTableRow(Result(kPush)), "\n\n",
                   BenchTableHead("scale"), "\n",
                   BenchTableRow(Result(R"pb(benchmark: "scale")pb")), "\n"));
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  const std::string line = BenchJson(Result(kPush));
  EXPECT_EQ(content.str(), absl::StrCat(line, "\n", line, "\n",
                                        R"({"benchmark":"scale"})", "\n"));
}

TEST(BenchReportTest, FileIsKeptUntilThereIsAResult) {
  const std::string path = ::testing::TempDir() + "/kept.json";
  std::ofstream(path) << "results\n";
  ASSERT_TRUE(BenchReport::Open(path).ok());
  std::ifstream file(path);
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "results");
}

TEST(BenchReportTest, JsonOnStandardOutput) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE((*BenchReport::Open("-"))->Add(Result(kPush)).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            BenchJson(Result(kPush)) + "\n");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(BenchTableRow(Result(kPush))));
}

TEST(BenchReportTest, FileThatCannotBe) {
  EXPECT_THAT(BenchReport::Open("/none/x.json").status().message(),
              HasSubstr("/none/x.json"));
}

}  // namespace
}  // namespace holdfast
