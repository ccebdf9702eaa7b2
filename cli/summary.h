// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_SUMMARY_H_
#define HOLDFAST_CLI_SUMMARY_H_

#include <string>

#include "absl/status/statusor.h"

namespace holdfast {

// A summary, for people, of a result.json with the content `json`:
//
//   example: done
//     steps          3000 in 12.0 s (250.0 steps/s, 50000 examples/s)
//     train loss     0.4321
//     test loss      0.4500
//     test accuracy  0.8400
//     staleness      mean 1.02, at most 7
//     worker:0       2000 pushes, 400000 examples
//     worker:1       1000 pushes, 200000 examples
//     resumed        2 times
//     digest         0123...
//
// Absent values are left out: a model that predicts a number has a "mean abs
// error" instead of an accuracy; staleness is shown for asynchronous jobs,
// "resumed" for jobs that went on from an earlier state, because a ps was lost
// or the run was started again. Errors: INVALID_ARGUMENT when `json` is not a
// JSON object.
absl::StatusOr<std::string> SummaryOf(const std::string& json);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_SUMMARY_H_
