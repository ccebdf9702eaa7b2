// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_ROWS_H_
#define HOLDFAST_CLI_BENCH_ROWS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cli/bench_cluster.h"
#include "cli/bench_report.h"
#include "cli/flag_set.h"
#include "cli/signal_watch.h"

namespace holdfast {

// The flags of `holdfast bench rows`, which measures what it costs one worker
// to push and pull rows of an embedding table, and to deduplicate the ids of a
// batch.
struct RowsFlags {
  std::string row_lengths = "16,64";
  std::string ps_counts = "1";
  uint64_t rows = 10'000'000;
  uint64_t ids = 65536;
  double zipf = 1.05;
  std::string ops = "push,pull,pushpull,assign,sum,spread,batch";
  double seconds = 1;
  BenchPs ps;

  void AddTo(FlagSet* set);
};

// Measures each combination of the flags' values in a cluster of its own, whose
// files are in `folder`, and adds the results to `report`.
// Errors: INVALID_ARGUMENT for wrong flags; those of BenchCluster.
absl::Status BenchRows(const RowsFlags& flags, const std::string& folder,
                       SignalWatch* signals, BenchReport* report);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_ROWS_H_
