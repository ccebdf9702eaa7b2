// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_SCALE_H_
#define HOLDFAST_CLI_BENCH_SCALE_H_

#include <string>

#include "absl/status/status.h"
#include "cli/bench_cluster.h"
#include "cli/bench_report.h"
#include "cli/flag_set.h"
#include "cli/signal_watch.h"

namespace holdfast {

// The flags of `holdfast bench scale`, which measures the throughput of ps with
// workers that only push and pull.
struct ScaleFlags {
  std::string workers = "1,2,4,8,16";
  std::string ps_counts = "1,2,4";
  std::string modes = "synchronous,asynchronous";
  std::string size = "4MB";
  std::string optimizer = "sgd";
  double seconds = 2;
  BenchPs ps;

  void AddTo(FlagSet* set);
};

// Measures each combination of the flags' values in a cluster of its own, whose
// files are in `folder`, and adds the results to `report`.
// Errors: INVALID_ARGUMENT for wrong flags; those of BenchCluster.
absl::Status BenchScale(const ScaleFlags& flags, const std::string& folder,
                        SignalWatch* signals, BenchReport* report);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_SCALE_H_
