// As many rounds of chaos.h as one likes:
//
//   bazel run //tests/faults:chaos_soak -- --rounds=200 --seed=7
//
// Round R again: --seed=7 --first_round=R --rounds=1. Exit status 1 when one
// was not survived.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "common/process/flags.h"
#include "tests/faults/chaos.h"

ABSL_FLAG(uint64_t, seed, 1, "What follows from it: see chaos.h.");
ABSL_FLAG(uint64_t, first_round, 0, "The first round.");
ABSL_FLAG(uint64_t, rounds, 200, "How many.");
ABSL_FLAG(int, parallel, 2, "How many at a time.");
ABSL_FLAG(std::string, folder, "/tmp/holdfast-chaos",
          "For the rounds' files; emptied of those of the same numbers.");

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
