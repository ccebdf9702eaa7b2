// SPDX-License-Identifier: Apache-2.0
#include "common/job/loss_watch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr size_t kFirstReports = 5;
// A normal job's losses fall; the worst are a few times the first ones.
constexpr double kExplosion = 100;

}  // namespace

std::string LossWatch::Add(double loss) {
  if (warned_) return "";
  sum_ += loss;
  if (++losses_ < losses_per_report_ && std::isfinite(loss)) return "";
  const double mean = sum_ / losses_;
  losses_ = 0;
  sum_ = 0;
  return AddReport(mean);
}

std::string LossWatch::AddReport(double loss) {
  if (!std::isfinite(loss)) {
    warned_ = true;
    return "the loss is not a finite number: the job may be diverging (a lower "
           "learning rate or clipping may help)";
  }
  if (first_.size() < kFirstReports) {
    first_.push_back(loss);
    if (first_.size() == kFirstReports) std::sort(first_.begin(), first_.end());
    return "";
  }
  const double median = first_[kFirstReports / 2];
  if (median <= 0 || loss <= kExplosion * median) return "";
  warned_ = true;
  return absl::StrCat("the loss is ", loss, ", over ", kExplosion,
                      " times the initial ", median,
                      ": the job may be diverging (a lower "
                      "learning rate or clipping may help)");
}

}  // namespace holdfast
