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

// `holdfast bench scale`: the throughput of ps with workers that only push and
// pull.
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

// Measures each point in a cluster of its own, in `folder`, and reports it.
// Errors: INVALID_ARGUMENT for wrong flags; those of BenchCluster.
absl::Status BenchScale(const ScaleFlags& flags, const std::string& folder,
                        SignalWatch* signals, BenchReport* report);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_SCALE_H_
