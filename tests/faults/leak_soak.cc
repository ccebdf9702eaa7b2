// SPDX-License-Identifier: Apache-2.0

// Runs leaks.h for as long as wanted:
//
//   bazel run //tests/faults:leak_soak -- --kills=1000 --steps=1000000
//
// The exit status is 1 if something has leaked.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "common/process/flags.h"
#include "tests/faults/leaks.h"

ABSL_FLAG(uint64_t, kills, 1000, "The minimum number of kills.");
ABSL_FLAG(uint64_t, steps, 1000000, "The minimum number of steps.");
ABSL_FLAG(bool, tables, false, "Whether the job has embedding tables.");
ABSL_FLAG(std::string, folder, "/tmp/holdfast-leaks",
          "For the job's files; emptied first.");

int main(int argc, char** argv) {
  const auto line = holdfast::ParseFlags(
      std::vector<std::string>(argv + (argc > 0), argv + argc));
  if (!line.ok()) {
    std::cerr << line.status().message() << std::endl;
    return 2;
  }
  holdfast::LeakOptions options;
  options.folder = absl::GetFlag(FLAGS_folder);
  options.kills = absl::GetFlag(FLAGS_kills);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.tables = absl::GetFlag(FLAGS_tables);
  const holdfast::LeakReport report = holdfast::LookForLeaks(options);
  std::cout << report.table << report.failure;
  return report.failure.empty() ? 0 : 1;
}
