#ifndef HOLDFAST_CLI_RESTARTS_H_
#define HOLDFAST_CLI_RESTARTS_H_

#include <optional>

#include "absl/time/time.h"
#include "cli/child_process.h"

namespace holdfast {

// Whether a daemon that has ended so is worth another start: a signal ended it,
// or it says so (kExitRestart), or something that it does not know of. Not when
// it ended well, or said that the job has failed or that it was called wrongly.
bool WorthRestarting(const ExitStatus& ended);

// When one task's daemon is started again: after a pause that doubles each time
// and begins anew once the daemon has run for long.
//
// Thread-compatible.
class Restarts {
 public:
  struct Options {
    // Of one task, in all. More ride out more faults, and hide for longer that
    // a daemon cannot run.
    int most = 10;
    absl::Duration first_pause = absl::Milliseconds(500);
    absl::Duration longest_pause = absl::Seconds(10);
    // Who has run for so long begins with first_pause again.
    absl::Duration long_run = absl::Seconds(60);
  };

  explicit Restarts(const Options& options)
      : options_(options), pause_(options.first_pause) {}

  // The daemon was started at `started` and has ended at `ended`. When to start
  // it again; nothing when it was started again as often as it may be.
  std::optional<absl::Time> Next(absl::Time started, absl::Time ended);

  // How often it was started again, or is to be.
  int count() const { return count_; }

 private:
  const Options options_;
  int count_ = 0;
  absl::Duration pause_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_RESTARTS_H_
