#ifndef HOLDFAST_CLI_PROGRESS_H_
#define HOLDFAST_CLI_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/loss_watch.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// "0:07", "12:34", "3:25:45"; seconds are rounded up.
std::string FormatTimeLeft(absl::Duration left);

// Turns what GetStatus says again and again into what a person at a terminal,
// or a log, wants to read of a running job:
//
//   step 1230/3000 41%  loss 0.4321  51234 examples/s  0:07 left  input 3%
//   accuracy 0.8312 (step 1000)  saved 1000  waiting for /job:worker/task:1
//
// on one line ("input" is the share of its time that a worker waits for
// batches, that of whom it is greatest), and, when the job was rolled back,
// why, on a line of its own, as are warnings of a loss that explodes
// (LossWatch) and of pushes that are not finite; what is not known yet is left
// out. The steps of an asynchronous job are its tickets that are spent. A model
// that predicts a number has "error 0.1234", its mean absolute error, in place
// of an accuracy.
//
// Thread-compatible.
class ProgressDisplay {
 public:
  struct Options {
    // Rewrite one line. Otherwise a line of its own for each `plain_interval`,
    // each evaluation, and each change of the job's phase or of what is waited
    // for.
    bool terminal = false;
    // Columns of the terminal; a longer line is cut.
    int width = 80;
    absl::Duration plain_interval = absl::Seconds(5);
    // Speed is taken over this long. Longer is steadier, and slower to show a
    // change.
    absl::Duration rate_window = absl::Seconds(3);
  };

  explicit ProgressDisplay(const Options& options) : options_(options) {}

  // What to print when `status` is heard at `now`; empty when nothing is due.
  std::string Update(const proto::GetStatusResponse& status, absl::Time now);

  // What to print so that `lines`, of others, stand before the running line.
  std::string Between(absl::string_view lines) const;

  // What to print before other text may follow.
  std::string Finish();

  // The line for `status`; of the speed it uses what Update has seen.
  std::string Line(const proto::GetStatusResponse& status) const;

 private:
  struct Sample {
    absl::Time time;
    uint64_t step;
    uint64_t examples;
  };

  // The line that tells of a new generation, or "".
  std::string Recovery(const proto::GetStatusResponse& status);
  // The lines that warn of a job that may be diverging, each once, or "".
  std::string Warnings(const proto::GetStatusResponse& status);
  bool PlainLineIsDue(const proto::GetStatusResponse& status,
                      absl::Time now) const;

  const Options options_;
  // Of the last rate_window, oldest first.
  std::deque<Sample> samples_;
  // On a terminal: the line that stands there. Otherwise: the last one.
  std::string shown_;
  absl::Time last_plain_ = absl::InfinitePast();
  proto::JobPhase last_phase_ = proto::JOB_PHASE_UNSPECIFIED;
  uint64_t last_evaluated_ = 0;
  uint64_t last_generation_ = 1;
  std::string last_waiting_;
  LossWatch loss_watch_;
  uint64_t watched_step_ = 0;
  bool warned_of_not_finite_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_PROGRESS_H_
