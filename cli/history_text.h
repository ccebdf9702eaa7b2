// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_HISTORY_TEXT_H_
#define HOLDFAST_CLI_HISTORY_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// The history of a job as CSV (RFC 4180, with '\n'): one line, in order of
// increasing step, for each step that has a point, an evaluation or a change of
// the learning rate:
//
//   step,time,loss,examples,steps_per_second,examples_per_second,accuracy,
//       test_loss,mean_absolute_error,mean_squared_error,top_k_accuracy,auc,
//       calibration
//   100,1715940000.250,0.4321,50000,102.5,51250,,,
//
// on one line each. If there are any, further columns follow for metrics of a
// user's own evaluator, by name, and `learning_rate_factor`, the factor of the
// next step. `time` is in seconds since 1970; unknown fields are empty. Numbers
// have as many digits as are needed to read back the same value.
std::string HistoryCsv(const proto::GetHistoryResponse& history);

// The history of a job as aligned columns for people, with times of day in
// `zone`.
std::string HistoryTable(const proto::GetHistoryResponse& history,
                         const absl::TimeZone& zone);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_HISTORY_TEXT_H_
