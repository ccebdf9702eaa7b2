// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_JOB_LOSS_WATCH_H_
#define HOLDFAST_COMMON_JOB_LOSS_WATCH_H_

#include <string>
#include <vector>

namespace holdfast {

// Detects that a job's loss explodes: that it exceeds 100 times the median of
// the first reports. It only warns people and decides nothing.
//
// Thread-compatible.
class LossWatch {
 public:
  // A report is the mean of `losses_per_report` losses. With more losses per
  // report, single batches matter less, but an explosion is detected later.
  explicit LossWatch(int losses_per_report = 1)
      : losses_per_report_(losses_per_report) {}

  // Returns a warning the first time that there is a reason for one, otherwise
  // an empty string. `loss` need not be finite.
  std::string Add(double loss);

 private:
  std::string AddReport(double loss);

  const int losses_per_report_;
  int losses_ = 0;
  double sum_ = 0;
  // The first reports, sorted once all have been added.
  std::vector<double> first_;
  bool warned_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_LOSS_WATCH_H_
