// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_report.h"

#include <errno.h>
#include <string.h>

#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/json_util.h"

namespace holdfast {
namespace {

using proto::BenchmarkResult;

struct Column {
  const char* head;
  // Negative for left alignment.
  int width;
  std::string (*text)(const BenchmarkResult& result);
};

std::string Word(const std::string& word) { return word.empty() ? "-" : word; }

std::string Number(bool there, double number, int digits) {
  return there ? absl::StrFormat("%.*f", digits, number) : "-";
}

std::string Op(const BenchmarkResult& r) { return Word(r.op()); }
std::string Codec(const BenchmarkResult& r) { return Word(r.codec()); }
std::string Job(const BenchmarkResult& r) { return Word(r.job()); }
std::string Mode(const BenchmarkResult& r) { return Word(r.mode()); }
std::string Bytes(const BenchmarkResult& r) {
  return Number(r.has_bytes(), r.bytes(), 0);
}
std::string Shards(const BenchmarkResult& r) {
  return Number(r.has_shards(), r.shards(), 0);
}
std::string Median(const BenchmarkResult& r) {
  return Number(r.has_median_us(), r.median_us(), 1);
}
std::string P90(const BenchmarkResult& r) {
  return Number(r.has_p90_us(), r.p90_us(), 1);
}
std::string P99(const BenchmarkResult& r) {
  return Number(r.has_p99_us(), r.p99_us(), 1);
}
std::string Rate(const BenchmarkResult& r) {
  return Number(r.has_gb_per_s(), r.gb_per_s(), r.gb_per_s() < 1 ? 4 : 2);
}
std::string Rounds(const BenchmarkResult& r) {
  return Number(r.has_rounds(), r.rounds(), 0);
}
std::string RowLength(const BenchmarkResult& r) {
  return Number(r.has_row_length(), r.row_length(), 0);
}
std::string TableRows(const BenchmarkResult& r) {
  return Number(r.has_table_rows(), r.table_rows(), 0);
}
std::string Rows(const BenchmarkResult& r) {
  return Number(r.has_rows(), r.rows(), 0);
}
std::string RowsPerSecond(const BenchmarkResult& r) {
  return Number(r.has_rows_per_second(), r.rows_per_second(), 0);
}
std::string NsPerRow(const BenchmarkResult& r) {
  return Number(r.has_ns_per_row(), r.ns_per_row(), 1);
}
std::string CpuPerRow(const BenchmarkResult& r) {
  return Number(r.has_cpu_ns_per_row(), r.cpu_ns_per_row(), 1);
}
std::string Ps(const BenchmarkResult& r) {
  return Number(r.has_ps(), r.ps(), 0);
}
std::string Workers(const BenchmarkResult& r) {
  return Number(r.has_workers(), r.workers(), 0);
}
std::string Steps(const BenchmarkResult& r) {
  return Number(r.has_steps_per_second(), r.steps_per_second(), 1);
}
std::string LeastSteps(const BenchmarkResult& r) {
  return Number(r.has_least_steps_per_second(), r.least_steps_per_second(), 1);
}
std::string MostSteps(const BenchmarkResult& r) {
  return Number(r.has_most_steps_per_second(), r.most_steps_per_second(), 1);
}
std::string Examples(const BenchmarkResult& r) {
  return Number(r.has_examples_per_second(), r.examples_per_second(), 0);
}
std::string CpuPerOp(const BenchmarkResult& r) {
  return Number(r.has_cpu_us(), r.cpu_us(), 1);
}
std::string Cpu(const BenchmarkResult& r) {
  return Number(r.has_cpu_seconds_per_gb(), r.cpu_seconds_per_gb(), 2);
}

const std::vector<Column>& ColumnsOf(absl::string_view benchmark) {
  static const auto* const kOps =
      new std::vector<Column>{{"op", -9, Op},
                              {"codec", -9, Codec},
                              {"bytes", 10, Bytes},
                              {"shards", 7, Shards},
                              {"median us", 12, Median},
                              {"p90 us", 12, P90},
                              {"p99 us", 12, P99},
                              {"GB/s", 8, Rate},
                              {"CPU us", 10, CpuPerOp},
                              {"rounds", 8, Rounds}};
  static const auto* const kRows =
      new std::vector<Column>{{"op", -9, Op},
                              {"ps", 4, Ps},
                              {"length", 6, RowLength},
                              {"table rows", 11, TableRows},
                              {"rows", 7, Rows},
                              {"median us", 10, Median},
                              {"p90 us", 10, P90},
                              {"p99 us", 10, P99},
                              {"rows/s", 10, RowsPerSecond},
                              {"ns/row", 8, NsPerRow},
                              {"GB/s", 8, Rate},
                              {"CPU ns/row", 10, CpuPerRow},
                              {"rounds", 7, Rounds}};
  static const auto* const kStep = new std::vector<Column>{
      {"job", -28, Job},       {"mode", -13, Mode},
      {"ps", 4, Ps},           {"workers", 8, Workers},
      {"steps/s", 10, Steps},  {"least", 10, LeastSteps},
      {"most", 10, MostSteps}, {"examples/s", 12, Examples},
      {"rounds", 8, Rounds}};
  static const auto* const kScale = new std::vector<Column>{
      {"mode", -13, Mode},  {"ps", 4, Ps},          {"workers", 8, Workers},
      {"bytes", 10, Bytes}, {"steps/s", 10, Steps}, {"GB/s", 8, Rate},
      {"CPU s/GB", 10, Cpu}};
  if (benchmark == "rows") return *kRows;
  if (benchmark == "step") return *kStep;
  return benchmark == "scale" ? *kScale : *kOps;
}

template <typename Text>
std::string Line(absl::string_view benchmark, const Text& text) {
  std::string line;
  for (const Column& column : ColumnsOf(benchmark)) {
    absl::StrAppendFormat(&line, "%s%*s", line.empty() ? "" : " ", column.width,
                          text(column));
  }
  return line;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchReport>> BenchReport::Open(
    const std::string& json) {
  std::unique_ptr<BenchReport> report(new BenchReport);
  report->path_ = json;
  report->table_ = json == "-" ? &std::cerr : &std::cout;
  if (json == "-") {
    report->json_ = &std::cout;
  } else if (!json.empty()) {
    // Existing contents stay until there is a result.
    report->file_.open(json, std::ios::app);
    if (!report->file_) {
      return absl::InvalidArgumentError(
          absl::StrCat("--json=", json, ": ", strerror(errno)));
    }
    report->json_ = &report->file_;
  }
  return report;
}

absl::Status BenchReport::Add(const BenchmarkResult& result) {
  if (result.benchmark() != benchmark_) {
    *table_ << (benchmark_.empty() ? "" : "\n")
            << BenchTableHead(result.benchmark()) << "\n";
    if (benchmark_.empty() && json_ == &file_) {
      file_.close();
      file_.open(path_, std::ios::trunc);
    }
    benchmark_ = result.benchmark();
  }
  *table_ << BenchTableRow(result) << std::endl;
  if (json_ != nullptr && !(*json_ << BenchJson(result) << std::endl)) {
    return absl::InternalError(absl::StrCat("cannot write ", path_));
  }
  return absl::OkStatus();
}

std::string BenchJson(const BenchmarkResult& result) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(result, &json, options);
  return status.ok() ? json : status.ToString();
}

absl::StatusOr<BenchmarkResult> ParseBenchJson(const std::string& line) {
  BenchmarkResult result;
  const auto status =
      google::protobuf::util::JsonStringToMessage(line, &result);
  if (status.ok()) return result;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", line, "\" is not a result: ", status.ToString()));
}

std::string BenchTableHead(absl::string_view benchmark) {
  return Line(benchmark, [](const Column& column) { return column.head; });
}

std::string BenchTableRow(const BenchmarkResult& result) {
  return Line(result.benchmark(),
              [&](const Column& column) { return column.text(result); });
}

}  // namespace holdfast
