// SPDX-License-Identifier: Apache-2.0

// Runs any number of rounds of chaos.h:
//
//   bazel run //tests/faults:chaos_soak -- --rounds=200 --seed=7
//
// To repeat round R: --seed=7 --first_round=R --rounds=1. The exit status is 1
// if a round was not survived.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "common/process/flags.h"
#include "tests/faults/chaos.h"

ABSL_FLAG(uint64_t, seed, 1, "The seed of all rounds (chaos.h).");
ABSL_FLAG(uint64_t, first_round, 0, "The number of the first round.");
ABSL_FLAG(uint64_t, rounds, 200, "The number of rounds.");
ABSL_FLAG(int, parallel, 2, "The number of rounds that run at a time.");
ABSL_FLAG(std::string, folder, "/tmp/holdfast-chaos",
          "For the rounds' files; folders of the same rounds are emptied.");

int main(int argc, char** argv) {
  const auto line = holdfast::ParseFlags(
      std::vector<std::string>(argv + (argc > 0), argv + argc));
  if (!line.ok()) {
    std::cerr << line.status().message() << std::endl;
    return 2;
  }
  holdfast::ChaosOptions options;
  options.folder = absl::GetFlag(FLAGS_folder);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.first_round = absl::GetFlag(FLAGS_first_round);
  options.rounds = absl::GetFlag(FLAGS_rounds);
  options.parallel = absl::GetFlag(FLAGS_parallel);
  const holdfast::ChaosReport report = holdfast::RunChaos(options);
  for (const std::string& failure : report.failures) {
    std::cout << "\n" << failure << "\n";
  }
  std::cout << "\n" << report.table;
  return report.failures.empty() ? 0 : 1;
}
