// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_STEP_H_
#define HOLDFAST_CLI_BENCH_STEP_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/bench_report.h"
#include "cli/flag_set.h"
#include "cli/signal_watch.h"

namespace holdfast {

// The flags of `holdfast bench step`, which measures how fast jobs train with
// `holdfast local`.
struct StepFlags {
  std::string jobs =
      "examples/fashion_mnist_softmax.textproto,"
      "examples/fashion_mnist_mlp.textproto";
  std::string modes = "synchronous,asynchronous";
  std::optional<int> ps;
  std::optional<int> workers;
  int steps = 600;
  int rounds = 3;
  std::string local_flags;

  void AddTo(FlagSet* set);
};

// Runs each job in each mode, all of them in turn, `rounds` times, in `folder`,
// without evaluation and checkpoints. Adds the results to `report` at the end.
// Errors: INVALID_ARGUMENT for wrong flags or a wrong job file; INTERNAL when a
// run fails, with the last lines of its log, or when synchronous runs end with
// different digests; CANCELLED when the user ends the program.
absl::Status BenchStep(const StepFlags& flags, const std::string& folder,
                       SignalWatch* signals, BenchReport* report);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_STEP_H_
