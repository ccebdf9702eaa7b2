// SPDX-License-Identifier: Apache-2.0
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

// Turns successive GetStatus answers into a display of a running job for a
// terminal or a log:
//
//   step 1230/3000 41%  loss 0.4321  51234 examples/s  0:07 left  input 3%
//   accuracy 0.8312 (step 1000)  saved 1000  waiting for /job:worker/task:1
//
// on one line ("input" is the largest share of its time that any worker waits
// for batches). A line of its own says why the job was rolled back; so do
// warnings about an exploding loss (LossWatch) and about pushes that are not
// finite. Values that are not known yet are left out. The steps of an
// asynchronous job are its spent tickets. For a model that predicts a number,
// "error 0.1234", its mean absolute error, replaces the accuracy.
//
// Thread-compatible.
class ProgressDisplay {
 public:
  struct Options {
    // Whether to rewrite one line. Otherwise a new line is printed after each
    // `plain_interval`, for each evaluation, and for each change of the job's
    // phase or of what it is waiting for.
    bool terminal = false;
    // Columns of the terminal; longer lines are cut.
    int width = 80;
    absl::Duration plain_interval = absl::Seconds(5);
    // Period over which the speed is averaged. With a longer period the speed
    // is steadier, but shows changes later.
    absl::Duration rate_window = absl::Seconds(3);
  };

  explicit ProgressDisplay(const Options& options) : options_(options) {}

  // Returns what to print when `status` is received at `now`; empty if nothing
  // is due.
  std::string Update(const proto::GetStatusResponse& status, absl::Time now);

  // Returns what to print so that `lines`, from another source, appear before
  // the line that is being rewritten.
  std::string Between(absl::string_view lines) const;

  // Returns what to print at the end, so that other text can follow.
  std::string Finish();

  // The line for `status`, with the speed as measured by Update.
  std::string Line(const proto::GetStatusResponse& status) const;

 private:
  struct Sample {
    absl::Time time;
    uint64_t step;
    uint64_t examples;
  };

  // The line that announces a new generation, or "".
  std::string Recovery(const proto::GetStatusResponse& status);
  // Warnings, each given once, that the job may be diverging, or "".
  std::string Warnings(const proto::GetStatusResponse& status);
  bool PlainLineIsDue(const proto::GetStatusResponse& status,
                      absl::Time now) const;

  const Options options_;
  // Samples of the last rate_window, oldest first.
  std::deque<Sample> samples_;
  // On a terminal, the line that is shown; otherwise, the last line printed.
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
