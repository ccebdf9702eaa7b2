// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_WIRE_H_
#define HOLDFAST_CLI_BENCH_WIRE_H_

#include <string>

#include "absl/status/status.h"
#include "cli/bench_cluster.h"
#include "cli/bench_report.h"
#include "cli/flag_set.h"
#include "cli/signal_watch.h"

namespace holdfast {

// The flags of `holdfast bench wire`, which measures what it costs one worker
// to push and pull a tensor, compared with the limits of the machine.
struct WireFlags {
  std::string sizes = "16,1kB,31kB,256kB,1MB,4MB,16MB,64MB,256MB";
  std::string shards = "1,2,4,8";
  // If empty, all codecs.
  std::string codecs;
  std::string ops = "push,pull,pushpull,ticket,tcp,memcpy,control";
  std::string load = "64MB";
  double seconds = 1;
  std::string same_host = "auto";
  BenchPs ps;

  void AddTo(FlagSet* set);
};

// Measures each combination of the flags' values in a cluster of its own, whose
// files are in `folder`, and adds the results to `report`.
// Errors: INVALID_ARGUMENT for wrong flags; those of BenchCluster.
absl::Status BenchWire(const WireFlags& flags, const std::string& folder,
                       SignalWatch* signals, BenchReport* report);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_WIRE_H_
