// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_REPORT_H_
#define HOLDFAST_CLI_BENCH_REPORT_H_

#include <fstream>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/benchmark.pb.h"

namespace holdfast {

// Writes the results of a benchmark as they arrive, so that an interrupted
// benchmark leaves what it has measured: as JSON Lines for programs and as a
// table for people.
//
// Thread-compatible.
class BenchReport {
 public:
  // `json` is the file for the JSON lines: none if empty; standard output if
  // "-", and then the table goes to standard error. Errors: those of the
  // system, naming the file.
  static absl::StatusOr<std::unique_ptr<BenchReport>> Open(
      const std::string& json);

  // Writes one result. Begins a new table if the previous result was of another
  // benchmark. Errors: INTERNAL when it cannot be written.
  absl::Status Add(const proto::BenchmarkResult& result);

 private:
  BenchReport() = default;

  std::string path_;
  std::ofstream file_;
  std::ostream* json_ = nullptr;
  std::ostream* table_ = nullptr;
  std::string benchmark_;
};

// A line of JSON, without the line break.
std::string BenchJson(const proto::BenchmarkResult& result);
// Parses a line that BenchJson has made. Errors: INVALID_ARGUMENT.
absl::StatusOr<proto::BenchmarkResult> ParseBenchJson(const std::string& line);

// The header of a table of `benchmark`, and a row of it, without line breaks.
// Absent fields are shown as "-".
std::string BenchTableHead(absl::string_view benchmark);
std::string BenchTableRow(const proto::BenchmarkResult& result);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_REPORT_H_
