#ifndef HOLDFAST_CLI_SUMMARY_H_
#define HOLDFAST_CLI_SUMMARY_H_

#include <string>

#include "absl/status/statusor.h"

namespace holdfast {

// What result.json, of which `json` is the content, says, for people:
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
// What is not in it is left out: a model that predicts a number has a "mean abs
// error" in place of an accuracy; staleness is told of asynchronous jobs,
// "resumed" of those that went on from an earlier state, be it that a ps was
// lost or that the run was started again. Errors: INVALID_ARGUMENT when it is
// not a JSON object.
absl::StatusOr<std::string> SummaryOf(const std::string& json);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_SUMMARY_H_
