// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_LOCAL_RUN_H_
#define HOLDFAST_CLI_LOCAL_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/local_workers.h"
#include "cli/restarts.h"

namespace holdfast {

// A job on this machine. All options have been validated by cli/local.cc.
struct LocalRunOptions {
  // The kind of the workers; not null.
  std::shared_ptr<const LocalWorkers> kind;
  int ps = 2;
  int workers = 2;
  std::string run_dir;
  std::string ps_binary;
  // Checkpoint directory of the ps; if empty, no checkpoints are made. A run
  // goes on from the checkpoints that it finds there.
  std::string checkpoint_dir;
  // How a daemon that ends before the job does is restarted, if that may help
  // (WorthRestarting). Nullopt: the end of such a daemon ends the run.
  std::optional<Restarts::Options> restarts;
  // Given to each ps, after the flags that make it part of the run.
  std::vector<std::string> ps_flags;
  // Whether worker i shares memory only with ps i. Requires as many workers as
  // ps.
  bool collocated = false;
  // Whether an evaluator evaluates the checkpoints. Requires a checkpoint_dir.
  bool evaluator = false;
  // Whether all connections are encrypted, with certificates made for the run.
  bool tls = false;
  // Port on loopback on which ps 0 serves the status page. 0: a free port.
  // Absent: no status page.
  std::optional<uint16_t> status_port = 0;
  // The command that continues this run after it was stopped, for people.
  std::string resume_command;

  // Time between two looks at the job's progress.
  absl::Duration status_period = absl::Milliseconds(200);
  // How long a daemon may take to end after it was asked to; then it is killed.
  absl::Duration stop_timeout = absl::Seconds(5);
  // How long the other daemons may take to end after the awaited workers have
  // ended; then they are named and killed. Must be longer than the time for
  // which ps wait for workers that have disappeared.
  absl::Duration drain_timeout = absl::Seconds(30);
};

// Runs the job: starts its daemons, shows its progress on standard output, and
// waits until all of them have ended, or ends them. No daemon is left running,
// however this process ends.
//
// If the checkpoints say that the job is finished, it is not run again, and
// nothing in the run directory is changed. Nor is anything run in a directory
// that holds the result of another run.
//
// Returns the exit code: kExitDone after the summary, or if the job was already
// finished; kExitFailed after the name, exit status and last log lines of the
// daemon that was first to fail and could not be restarted (again), or that did
// not end, or if the workers have ended before the job; kExitUsage if that
// daemon reported an error in the job or its flags, or if the run directory
// cannot be used; kExitInterrupted if the user ended the run.
int RunLocally(const LocalRunOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_LOCAL_RUN_H_
