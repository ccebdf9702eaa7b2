// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_RECENT_RATES_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_RECENT_RATES_H_

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace holdfast {

// How fast a job trains: steps and examples per second over the last kWindow of
// training, or over the whole training if it is shorter.
//
// Thread-compatible.
class RecentRates {
 public:
  static constexpr absl::Duration kWindow = absl::Seconds(10);
  // The time between two samples. The window exceeds kWindow by at most this.
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  // The job's progress.
  struct Position {
    uint64_t steps = 0;
    uint64_t examples = 0;
  };
  struct Rates {
    double steps_per_second = 0;
    double examples_per_second = 0;
  };

  // Called when training begins, or resumes in another generation.
  void Begin(absl::Time now, const Position& position);
  // Takes a sample if one is due. Call it often.
  void Look(absl::Time now, const Position& position);
  // Called when the job has ended. The rates no longer change.
  void End(absl::Time now, const Position& position);
  // Called when a generation is over. The rates are 0 until the next Begin.
  void Reset();

  Rates At(absl::Time now, const Position& position) const;

 private:
  struct Sample {
    absl::Time at;
    Position position;
  };

  // All but the first are younger than kWindow.
  std::deque<Sample> samples_;
  bool ended_ = false;
  Rates last_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_RECENT_RATES_H_
