// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_RESTARTS_H_
#define HOLDFAST_CLI_RESTARTS_H_

#include <optional>

#include "absl/time/time.h"
#include "cli/child_process.h"

namespace holdfast {

// Whether a daemon that ended like this is worth restarting: it was ended by a
// signal, asked to be restarted (kExitRestart), or had an unknown exit code.
// False if it ended successfully, or reported that the job has failed or that
// it was called wrongly.
bool WorthRestarting(const ExitStatus& ended);

// Decides when one task's daemon is restarted: after a pause that doubles each
// time, and is reset once the daemon has run for a long time.
//
// Thread-compatible.
class Restarts {
 public:
  struct Options {
    // Maximum number of restarts of one task. Larger values survive more
    // faults, but take longer to reveal that a daemon cannot run.
    int most = 10;
    absl::Duration first_pause = absl::Milliseconds(500);
    absl::Duration longest_pause = absl::Seconds(10);
    // A daemon that has run for this long starts over with first_pause.
    absl::Duration long_run = absl::Seconds(60);
  };

  explicit Restarts(const Options& options)
      : options_(options), pause_(options.first_pause) {}

  // For a daemon that was started at `started` and ended at `ended`, returns
  // when to restart it; nothing if it has been restarted `most` times.
  std::optional<absl::Time> Next(absl::Time started, absl::Time ended);

  // Number of restarts, including one that is scheduled.
  int count() const { return count_; }

 private:
  const Options options_;
  int count_ = 0;
  absl::Duration pause_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_RESTARTS_H_
