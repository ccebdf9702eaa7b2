// SPDX-License-Identifier: Apache-2.0

// Measures how long a small job stands still when a task is killed, and started
// again by a supervisor 0.1 s later: from the kill until the step is higher
// than before.
//
//   bazel run -c opt //tests/faults:recovery_time -- --rounds=10
//
// The death of a worker costs the rest of its lease, during which its place is
// kept, and its start. The death of a ps costs the same, the restoration, and
// the steps since the last checkpoint (at most 6 here), which are repeated.

#include <signal.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/process/flags.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"

ABSL_FLAG(int, rounds, 10, "The number of times that each task is killed.");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(1), "--lease of the ps.");
ABSL_FLAG(std::string, folder, "/tmp/holdfast-recovery",
          "For the job's files.");

namespace holdfast {
namespace {

// The time after one kill of `task` in the given step.
absl::Duration StandStill(const std::string& task, uint64_t at_step) {
  TaskCluster::Options options =
      SmallCluster(JobKind::kSynchronous, absl::GetFlag(FLAGS_folder));
  // The first flag is the lease.
  options.ps_flags[0] = absl::StrCat(
      "--lease=", absl::FormatDuration(absl::GetFlag(FLAGS_lease)));
  TaskCluster cluster(options);
  cluster.StartAll();
  const absl::Duration limit = absl::Seconds(120);
  cluster.AdvanceUntil([&] { return cluster.max_step() >= at_step; }, limit);
  const uint64_t step = cluster.max_step();
  const absl::Time begun = SteadyNow();
  cluster.Signal(task, SIGKILL);
  cluster.AdvanceUntil([&] { return cluster.max_step() > step + 1; }, limit);
  return SteadyNow() - begun;
}

int Main() {
  for (const char* task : {"worker-1", "worker-0", "ps-1", "ps-0"}) {
    std::vector<double> seconds;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      seconds.push_back(absl::ToDoubleSeconds(StandStill(task, 10 + round)));
    }
    std::sort(seconds.begin(), seconds.end());
    absl::PrintF(
        "%-9s median %.2f s, least %.2f s, longest %.2f s (lease %s)\n", task,
        seconds[seconds.size() / 2], seconds.front(), seconds.back(),
        absl::FormatDuration(absl::GetFlag(FLAGS_lease)));
  }
  return 0;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const auto line = holdfast::ParseFlags(
      std::vector<std::string>(argv + (argc > 0), argv + argc));
  if (!line.ok()) {
    std::cerr << line.status().message() << std::endl;
    return 2;
  }
  return holdfast::Main();
}
