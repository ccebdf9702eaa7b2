#ifndef HOLDFAST_COMMON_JOB_LOSS_WATCH_H_
#define HOLDFAST_COMMON_JOB_LOSS_WATCH_H_

#include <string>
#include <vector>

namespace holdfast {

// Notices that a job's loss explodes: it is 100 times the median of the first
// reports. For people; decides nothing.
//
// Thread-compatible.
class LossWatch {
 public:
  // A report is the mean of so many losses. More of them smooth out single
  // batches, and notice later.
  explicit LossWatch(int losses_per_report = 1)
      : losses_per_report_(losses_per_report) {}

  // A warning, the first time that there is reason for one; otherwise empty.
  // `loss` need not be finite.
  std::string Add(double loss);

 private:
  std::string AddReport(double loss);

  const int losses_per_report_;
  int losses_ = 0;
  double sum_ = 0;
  // The first reports, sorted once all are here.
  std::vector<double> first_;
  bool warned_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_LOSS_WATCH_H_
