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

// The results of a benchmark, written as they come, so that one that is
// interrupted leaves what it has measured: for programs JSON Lines, and for
// people a table.
//
// Thread-compatible.
class BenchReport {
 public:
  // `json`: the file that gets the lines; empty: none; "-": standard output,
  // and the table goes to standard error. Errors: as the system says, naming
  // the file.
  static absl::StatusOr<std::unique_ptr<BenchReport>> Open(
      const std::string& json);

  // A result of another benchmark than the one before begins another table.
  // Errors: INTERNAL when it cannot be written.
  absl::Status Add(const proto::BenchmarkResult& result);

 private:
  BenchReport() = default;

  std::string path_;
  std::ofstream file_;
  std::ostream* json_ = nullptr;
  std::ostream* table_ = nullptr;
  std::string benchmark_;
};

// A line of JSON, without its end.
std::string BenchJson(const proto::BenchmarkResult& result);
// Reads such a line. Errors: INVALID_ARGUMENT.
absl::StatusOr<proto::BenchmarkResult> ParseBenchJson(const std::string& line);

// The head of a table of that `benchmark`, and a row of it, without their ends.
// What is absent shows as "-".
std::string BenchTableHead(absl::string_view benchmark);
std::string BenchTableRow(const proto::BenchmarkResult& result);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_REPORT_H_
